// SPDX-License-Identifier: Apache-2.0
// build.mjs HTML HEADER: bundles the page into one file, and that file into a C header, with the
// hashes by which the browser knows the page's own script and style (Content-Security-Policy).
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';

const [html, header] = process.argv.slice(2);
const out = await build({
  entryPoints: [new URL('src/main.ts', import.meta.url).pathname],
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  outdir: 'out',
  write: false,
  legalComments: 'none',
});
const text = (ending) =>
  out.outputFiles
    .filter((f) => f.path.endsWith(ending))
    .map((f) => f.text)
    .join('');
const style = text('.css');
const script = text('.js').replaceAll('</script', '<\\/script');
const hash = (code) => `'sha256-${createHash('sha256').update(code).digest('base64')}'`;
const read = (file) => readFileSync(new URL(file, import.meta.url), 'utf8');
// licences of packages in the bundle have to be in each copy of it
const licences = Object.keys(JSON.parse(read('package.json')).dependencies)
  .map((name) => `${name}:\n${read(`node_modules/${name}/LICENSE`)}`)
  .join('\n');
const page = read('index.html')
  .replace('LICENCES', () => licences.replaceAll('--', '- -'))
  .replace('/*STYLE*/', () => style)
  .replace('/*SCRIPT*/', () => script);
const bytes = Buffer.from(page);

writeFileSync(html, bytes);
writeFileSync(
  header,
  '/* made from web/ by web/build.mjs */\n#include <stddef.h>\n' +
    `#define PAGE_SCRIPT_HASH "${hash(script)}"\n#define PAGE_STYLE_HASH "${hash(style)}"\n` +
    `static const unsigned char page_html[] = {${[...bytes].join(',')}};\n` +
    'static const size_t page_html_len = sizeof(page_html);\n',
);
