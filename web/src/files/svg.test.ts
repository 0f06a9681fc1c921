// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { svgOf } from './svg';

const frame = {
  x: 10, y: 28, width: 80.256, height: 18, colour: '#abcdef', textColour: '#000',
  hatched: false, label: 'std::vector<int>', title: 'a "b" & <c>',
};
const svg = (part: object) =>
  svgOf({ heading: 'on-cpu', width: 100, height: 64, frames: [{ ...frame, ...part }], leftOut: 0 });

test('a frame has its place, colour, label and words', () => {
  const text = svg({});

  assert.match(text, /^<svg xmlns="http:\/\/www.w3.org\/2000\/svg" width="100" height="64"/);
  assert.ok(
    text.includes(
      '<g><title>a &quot;b&quot; &amp; &lt;c&gt;</title>' +
        '<rect x="10" y="28" width="79.26" height="17" fill="#abcdef"/>' +
        '<text x="14" y="40.96" fill="#000">std::vector&lt;int&gt;</text></g>',
    ),
  );
  assert.ok(!text.includes('url(#hatch)'));
  assert.ok(svg({ hatched: true }).includes('fill="url(#hatch)"'));
});

test('a hostile name stays text', () => {
  const text = svg({ title: '</title><script>alert(1)</script>', label: ']]><b>&lt;' });

  assert.ok(!/<script|<b>/.test(text));
  assert.ok(text.includes('&lt;/title&gt;&lt;script&gt;'));
  assert.ok(text.includes(']]&gt;&lt;b&gt;&amp;lt;'));
});

test('characters that XML does not have are replaced', () => {
  const text = svg({ title: 'a\0b\x1b\uffff\ud800c' });

  assert.ok(text.includes('<title>a\ufffdb\ufffd\ufffd\ufffdc<'));
});
