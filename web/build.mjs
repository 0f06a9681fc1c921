// SPDX-License-Identifier: Apache-2.0
// build.mjs HTML HEADER: bundles the page into one file, and that file into a C header: as it is
// and compressed, with its hash (ETag), and with the hashes by which the browser knows the script
// and the style of the page (Content-Security-Policy).
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

const [html, header] = process.argv.slice(2);
const out = await build({
  entryPoints: [new URL('src/main.tsx', import.meta.url).pathname],
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
const sha256 = (bytes, form) => createHash('sha256').update(bytes).digest(form);
const hash = (code) => `'sha256-${sha256(code, 'base64')}'`;
const array = (name, bytes) =>
  `static const unsigned char ${name}[] = {${[...bytes].join(',')}};\n`;
const read = (file) => readFileSync(new URL(file, import.meta.url), 'utf8');
// licences of packages in the bundle have to be in each copy of it
const licences = Object.keys(JSON.parse(read('package.json')).dependencies)
  .map((name) => `${name}:\n${read(`node_modules/${name}/LICENSE`)}`)
  .join('\n');
const page = read('index.html')
  .replace('LICENCES', () => licences.replaceAll('--', '- -'))
  .replace('/*STYLE*/', () => style)
  .replace('/*SCRIPT*/', () => script);

writeFileSync(html, page);
writeFileSync(
  header,
  '/* made from web/ by web/build.mjs */\n' +
    `#define PAGE_SCRIPT_HASH "${hash(script)}"\n#define PAGE_STYLE_HASH "${hash(style)}"\n` +
    `#define PAGE_ETAG "\\"${sha256(page, 'hex')}\\""\n` +
    array('page_html', Buffer.from(page)) +
    array('page_gzip', gzipSync(page, { level: 9 })),
);
