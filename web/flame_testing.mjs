// SPDX-License-Identifier: Apache-2.0
// The flame graph alone, without a hub, in a page of Chromium: what its tests and its bench share.
import { esbuild, SOURCE } from './chromium.mjs';

const { outputFiles } = await esbuild.build({
  stdin: {
    contents: [
      'flame/flame',
      'profile/change',
      'profile/difference',
      'profile/table',
      'profile/testing',
      'profile/tree',
    ]
      .map((file) => `export * from './${file}';`)
      .join(''),
    resolveDir: SOURCE,
  },
  bundle: true,
  format: 'iife',
  globalName: 'module',
  target: 'es2022',
  outdir: 'out',
  write: false,
});
const text = (ending) => outputFiles.find((f) => f.path.endsWith(ending)).text;

// A page with an empty graph, which `newPage` opens. In it are `graph`, what profile/testing.ts
// exports, and the functions below.
export async function openGraph(newPage, { width = 800, height = 600, ...context } = {}) {
  const page = await newPage({ viewport: { width, height }, reducedMotion: 'reduce', ...context });

  await page.setContent(
    `<!doctype html><style>body { margin: 0 } ${text('.css')}</style><div id="graph"></div>`,
  );
  await page.addScriptTag({ content: text('.js') });
  await page.addScriptTag({ content: `(${inPage})()` });
  return page;
}

function inPage() {
  Object.assign(window, module);
  window.graph = new FlameGraph(document.getElementById('graph'));
  // Resolves once what was asked for is drawn.
  window.drawn = () =>
    new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  window.box = (name) => graph.boxes().find((b) => b.name === name);
  // The colour of a pixel of the canvas, at a point of the graph.
  window.pixel = (x, y) => {
    const canvas = document.querySelector('#graph canvas');
    const at = [x, y - canvas.offsetTop].map((v) => Math.round(v * devicePixelRatio));
    const [r, g, b] = canvas.getContext('2d').getImageData(...at, 1, 1).data;
    return `rgb(${r}, ${g}, ${b})`;
  };
  // A colour of CSS in the same form.
  window.rgb = (colour) => {
    const canvas = new OffscreenCanvas(1, 1).getContext('2d');
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return `rgb(${r}, ${g}, ${b})`;
  };
  // How many dark pixels a part of the graph has: its text.
  window.ink = ({ x, y, width, height }) => {
    const canvas = document.querySelector('#graph canvas');
    const { data } = canvas
      .getContext('2d')
      .getImageData(x + 1, y - canvas.offsetTop, Math.max(1, width - 2), height - 1);
    let n = 0;
    for (let i = 0; i < data.length; i += 4)
      if (data[i] + data[i + 1] + data[i + 2] < 300) n++;
    return n;
  };
}
