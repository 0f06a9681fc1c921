// SPDX-License-Identifier: Apache-2.0
// Flame graphs of others in Chromium, for peers_bench.mjs and speedscope.mjs. npm installs them in
// build/peers; the page has nothing of them.
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BUILD } from './chromium.mjs';

export const PEERS = resolve(BUILD, 'peers');
const RELEASE = join(PEERS, 'node_modules/speedscope/dist/release');
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' };
// speedscope draws by WebGL, which Chromium emulates on a machine without a GPU
export const WEBGL = ['--use-angle=swiftshader', '--enable-unsafe-swiftshader'];

export function install() {
  const lock = readFileSync(new URL('peers/package-lock.json', import.meta.url), 'utf8');
  const installed = join(PEERS, '.installed'); // the lock file of what is there

  mkdirSync(PEERS, { recursive: true });
  cpSync(fileURLToPath(new URL('peers', import.meta.url)), PEERS, { recursive: true });
  if (existsSync(installed) && readFileSync(installed, 'utf8') === lock) return;
  execFileSync('npm', ['ci', '--ignore-scripts', '--no-progress', '--loglevel=error'], {
    cwd: PEERS, stdio: ['ignore', 'ignore', 'inherit'],
  });
  writeFileSync(installed, lock);
}

// Runs in speedscope's page: resolves once the profile of this name in the text is a picture.
export async function showInSpeedscope(text, name = 'bench') {
  const data = new DataTransfer();
  data.items.add(new File([text], `${name}.speedscope.json`));
  document.body.firstElementChild.firstElementChild.dispatchEvent(
    new DragEvent('drop', { bubbles: true, cancelable: true, dataTransfer: data }),
  );
  const isShown = () => document.querySelector('canvas') && document.title.includes(name);
  while (!isShown()) await new Promise(requestAnimationFrame);
}

// Serves the page of a peer (html null: that of speedscope) and a profile as its text.
export async function serve({ html }, script, text) {
  const files = {
    '/profile': ['application/json', text],
    '/script.js': ['text/javascript', script],
    ...(html && { '/': ['text/html', `<!doctype html>${html}<script src="script.js"></script>`] }),
  };
  const server = createServer(({ url }, answer) => {
    const path = url === '/' ? '/index.html' : url.replace(/\?.*/, '');
    try {
      const [type, body] = files[url] ?? [TYPES[extname(path)], readFileSync(join(RELEASE, path))];
      answer.setHeader('Content-Type', type ?? 'application/octet-stream');
      answer.end(body);
    } catch {
      answer.writeHead(404).end();
    }
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return server;
}
