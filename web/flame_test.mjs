#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// Tests of the flame graph alone, in a real Chromium: boxes, colours and text at known points.
// Needs Chromium and the installed packages: `make all && web/flame_test.mjs`.
import assert from 'node:assert/strict';
import { launch, picture, run, until } from './chromium.mjs';
import { openGraph } from './flame_testing.mjs';

const ROW = 18;
// main has 100: "work" 60 (of that "inner" 40), "read" 30, and 10 itself.
const SMALL = ['main', 10, ['read', 30], ['work', 20, ['inner', 40]]];
const show = (page, tree) =>
  page.evaluate(async (tree) => {
    graph.show(profileOf(tree));
    await drawn();
  }, tree);
const drawn = (page) => page.evaluate(() => drawn());
const places = (page) =>
  page.evaluate(() =>
    graph.boxes().map(({ name, x, y, width }) => [name, ...[x, y, width].map(Math.round)]),
  );
const names = async (page) => (await places(page)).map(([name]) => name);
const said = (page) => page.textContent('.flame-read p');
const rows = (page) =>
  page.$$eval('.flame-read tbody tr', (all) =>
    all.map((r) => [...r.cells].map((c) => c.textContent).join(' ')),
  );

// The hue of "#rrggbb" in degrees.
function hueOf(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const most = Math.max(r, g, b);
  const range = most - Math.min(r, g, b);

  if (most === r) return (360 + (60 * (g - b)) / range) % 360;
  return most === g ? 120 + (60 * (b - r)) / range : 240 + (60 * (r - g)) / range;
}

const tests = {
  async 'frames lie where their values say, the greatest first'(newPage) {
    const page = await openGraph(newPage);
    await show(page, SMALL);
    assert.deepEqual(await places(page), [
      ['main', 0, 0, 800],
      ['work', 0, ROW, 480],
      ['inner', 0, 2 * ROW, 320],
      ['read', 480, ROW, 240],
    ]);
    assert.equal(await page.$eval('.flame-frames', (e) => e.clientHeight), 3 * ROW);
    const colours = await page.evaluate(() =>
      graph.boxes().map((b) => [pixel(b.x + b.width - 8, b.y + 9), rgb(b.colour)]),
    );
    for (const [is, want] of colours) assert.equal(is, want);
    assert.ok(new Set(colours.map(([is]) => is)).size > 1);
    const white = 'rgb(255, 255, 255)'; // nothing: main itself, work itself, the gap of two rows
    for (const point of [[790, 27], [470, 45], [479, 27], [100, 17]])
      assert.equal(await page.evaluate((p) => pixel(...p), point), white, `at ${point}`);
    assert.ok((await page.evaluate(() => ink(box('inner')))) > 20);
  },
  async 'upward, the root is at the bottom'(newPage) {
    const page = await openGraph(newPage);
    await show(page, SMALL);
    await page.evaluate(async () => (graph.set({ upward: true }), await drawn()));
    assert.deepEqual(await places(page), [
      ['main', 0, 2 * ROW, 800],
      ['work', 0, ROW, 480],
      ['inner', 0, 0, 320],
      ['read', 480, ROW, 240],
    ]);
    assert.equal(
      await page.evaluate(() => pixel(500, 27)),
      await page.evaluate(() => rgb(box('read').colour)),
    );
    await page.mouse.click(100, 9);
    await drawn(page);
    assert.match(await said(page), /^inner/);
  },
  async 'a click zooms in, its callers stay, Escape zooms out'(newPage) {
    const page = await openGraph(newPage);
    await show(page, SMALL);
    const before = await page.evaluate(() => pixel(700, 9));
    await page.mouse.click(200, 27); // work
    await drawn(page);
    assert.deepEqual(await places(page), [
      ['main', 0, 0, 800],
      ['work', 0, ROW, 800],
      ['inner', 0, 2 * ROW, 533],
    ]);
    assert.notEqual(await page.evaluate(() => pixel(700, 9)), before); // a caller is faded
    await page.mouse.click(600, 9); // main
    await drawn(page);
    assert.equal((await names(page)).length, 4);
    await page.mouse.click(200, 45); // inner
    await page.keyboard.press('Escape');
    await drawn(page);
    assert.equal((await names(page)).length, 4);
  },
  async 'a dark graph has a dark background, and callers recede into it'(newPage) {
    const page = await openGraph(newPage);
    const read = (x, y) => page.evaluate(([left, top]) => pixel(left, top), [x, y]);
    await page.evaluate(() => graph.set({ dark: true }));
    await show(page, SMALL);
    assert.equal(await read(790, 2 * ROW + 9), 'rgb(28, 28, 28)'); // right of "inner"
    const bright = await read(700, 9);
    await page.mouse.click(200, 27); // work
    await drawn(page);
    const brightness = (rgb) => Math.max(...rgb.match(/\d+/g).map(Number));
    assert.ok(brightness(await read(700, 9)) < brightness(bright));
    await page.evaluate(() => graph.set({ dark: false }));
    await drawn(page);
    assert.equal(await read(790, 2 * ROW + 9), 'rgb(255, 255, 255)');
  },
  async 'a zoom moves, and ends where it should'(newPage) {
    const page = await openGraph(newPage, { reducedMotion: 'no-preference' });
    await show(page, SMALL);
    await page.evaluate(() => {
      window.widths = [];
      graph.zoom(3); // read
      const look = () => {
        widths.push(box('read').width);
        if (widths.at(-1) < 799.9) requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    });
    await until(() => page.evaluate(() => box('read').width > 799.9));
    const widths = await page.evaluate(() => widths);
    assert.ok(widths.every((w, i) => w >= (widths[i - 1] ?? 240)), widths.join());
    assert.deepEqual(await places(page), [['main', 0, 0, 800], ['read', 0, ROW, 800]]);
  },
  async 'frames too narrow to draw are one box, and a click on it shows them'(newPage) {
    const page = await openGraph(newPage);
    const small = Array.from({ length: 5000 }, (_, i) => [`f${i}`, 1, [`leaf${i}`, 1]]);
    await show(page, ['main', 0, ['large', 10_000], ...small]);
    assert.deepEqual(await places(page), [
      ['main', 0, 0, 800],
      ['large', 0, ROW, 400],
      ['10,000 smaller', 400, ROW, 400],
    ]);
    await page.mouse.move(600, 27);
    assert.equal(
      await page.evaluate(() => graph.text(graph.frameAt(600, 27))),
      '10,000 frames too narrow to draw — 10,000 (50.0 %); a click zooms in',
    );
    await page.mouse.click(600, 27);
    await drawn(page);
    // in a picture of 800 pixels each has 0.16
    assert.deepEqual((await places(page))[1], ['10,000 smaller', 0, ROW, 800]);
    assert.equal(
      await page.evaluate(() => graph.text(graph.frameAt(600, 27))),
      '10,000 frames too narrow to draw — 10,000 (50.0 %)',
    );
    await page.evaluate(() => graph.select(0));
    const read = await rows(page);
    assert.equal(read.length, 1 + 100 + 1);
    assert.deepEqual(read.slice(0, 2), [
      'selected main 20,000 100.0 %',
      'callee large 10,000 50.0 %',
    ]);
    assert.match(read.at(-1), /^callee 4,901 smaller ones/);
    await page.setViewportSize({ width: 5000, height: 300 });
    await until(async () => (await names(page)).filter((n) => /^f\d+$/.test(n)).length === 5000);
  },
  async 'a search marks its frames and gives their sum, each stack once'(newPage) {
    const page = await openGraph(newPage);
    const small = Array.from({ length: 5000 }, (_, i) => [`f${i}`, 1]);
    await show(page, ['main', 0, ['work', 0, ['work', 9_000]], ['read', 6000], ...small]);
    const sum = (name) =>
      page.evaluate(async (name) => {
        graph.search((of) => of === name);
        await drawn();
        return graph.foundSum();
      }, name);
    assert.equal(await sum('work'), 9000);
    const magenta = 'rgb(230, 0, 230)';
    assert.equal(await page.evaluate(() => pixel(200, 27)), magenta);
    assert.equal(await page.evaluate(() => pixel(200, 45)), magenta);
    assert.notEqual(await page.evaluate(() => pixel(500, 27)), magenta);
    const grey = await page.evaluate(() => pixel(790, 27));
    assert.equal(await sum('f77'), 1); // it is too narrow to draw, but the box that has it says so
    assert.notEqual(await page.evaluate(() => pixel(790, 27)), grey);
    await page.evaluate(async () => (graph.search(null), await drawn()));
    assert.equal(await page.evaluate(() => pixel(790, 27)), grey);
  },
  async 'time that nobody measured is hatched, nothing else is'(newPage) {
    const page = await openGraph(newPage);
    await page.evaluate(async () => {
      const columns = profileOf(['request', 0, ['not seen', 50], ['main', 50]]);
      columns.functions.kinds[columns.functions.names.indexOf('not seen')] = 'missing';
      graph.show(columns);
      await drawn();
    });
    const coloursOf = (name) =>
      page.evaluate((name) => {
        const { x, y, width } = box(name);
        const right = Array.from({ length: 100 }, (_, i) => x + width - 4 - i);
        return [...new Set(right.map((at) => pixel(at, y + 9)))];
      }, name);
    assert.equal((await coloursOf('main')).length, 1);
    assert.ok((await coloursOf('not seen')).length > 1);
  },
  async 'the keyboard walks, and a screen reader is told'(newPage) {
    const page = await openGraph(newPage);
    await show(page, SMALL);
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.className), 'flame-frames');
    const walk = async (key, name) => {
      await page.keyboard.press(key);
      assert.match(await said(page), new RegExp(`^${name} (\\(program\\) )?— `), key);
    };
    await walk('ArrowDown', 'main');
    await walk('ArrowDown', 'work');
    await walk('ArrowRight', 'read');
    await walk('ArrowRight', 'read'); // the last one
    await walk('ArrowLeft', 'work');
    await walk('ArrowDown', 'inner');
    await walk('ArrowUp', 'work');
    assert.equal(await said(page), 'work (program) — 60 (60.0 %), itself 20');
    assert.deepEqual(await rows(page), [
      'caller main 100 100.0 %',
      'selected work 60 60.0 %',
      'callee inner 40 40.0 %',
    ]);
    await page.keyboard.press('Enter');
    await drawn(page);
    assert.deepEqual(await names(page), ['main', 'work', 'inner']);
    await walk('ArrowRight', 'read'); // is not in view: it zooms out
    await drawn(page);
    assert.equal((await names(page)).length, 4);
    assert.ok(await page.isVisible('.flame-selected'));
  },
  async 'a frame says its shares of all and of its caller, or of what it calls'(newPage) {
    const page = await openGraph(newPage);
    await show(page, SMALL);
    const text = (name) =>
      page.evaluate((name) => graph.text({ node: box(name).node, rest: 0 }), name);
    assert.equal(
      await text('inner'),
      'inner (program) — 40 (40.0 %, 66.7 % of its caller), itself 40',
    );
    assert.equal(await text('work'), 'work (program) — 60 (60.0 %), itself 20');
    await page.evaluate(() => graph.set({ callers: true, whole: 400 }));
    assert.equal(await text('inner'), 'inner (program) — 40 (10.0 %, 66.7 % of its callee)');
    await page.evaluate(() => graph.select(1));
    assert.deepEqual(await rows(page), [
      'callee main 100 25.0 %',
      'selected work 60 15.0 %',
      'caller inner 40 10.0 %',
    ]);
  },
  async 'a menu of a frame: right button, keyboard, a finger that rests'(newPage) {
    const page = await openGraph(newPage, { hasTouch: true });
    await show(page, SMALL);
    const asked = () => page.evaluate(() => window.asked);
    await page.evaluate(() => {
      window.asked = [];
      window.isShown = [];
      addEventListener('contextmenu', (e) => isShown.push(!e.defaultPrevented));
    });
    await page.mouse.click(200, 27, { button: 'right' }); // the graph has no menu
    assert.deepEqual(await page.evaluate(() => isShown), [true]);
    await page.evaluate(() =>
      graph.set({ onMenu: (node, { x, y }) => asked.push([node, Math.round(x), Math.round(y)]) }),
    );
    await page.mouse.click(200, 27, { button: 'right' }); // work
    await page.mouse.click(780, 27, { button: 'right' }); // no frame
    assert.deepEqual(await page.evaluate(() => isShown), [true, false, true]);
    assert.deepEqual(await asked(), [[1, 200, 27]]);
    assert.equal((await names(page)).length, 4); // it does not zoom
    await page.focus('.flame-frames');
    await page.keyboard.press('ArrowRight'); // read
    await page.keyboard.press('Shift+F10');
    await page.keyboard.press('ContextMenu');
    assert.deepEqual((await asked()).slice(1), [[3, 480, 2 * ROW], [3, 480, 2 * ROW]]);
    const touch = (type, x) =>
      page.dispatchEvent('.flame-frames', type, {
        pointerType: 'touch', clientX: x, clientY: 27, bubbles: true,
      });
    await touch('pointerdown', 200);
    await touch('pointermove', 240); // a scroll
    await touch('pointerup', 240);
    await touch('pointerdown', 300);
    await touch('pointermove', 302);
    await until(async () => (await asked()).length === 4);
    await touch('pointerup', 302);
    await page.dispatchEvent('.flame-frames', 'click', { clientX: 302, clientY: 27 });
    await drawn(page);
    assert.deepEqual((await asked())[3], [1, 300, 27]);
    assert.equal((await names(page)).length, 4); // the click that ends the rest zooms nowhere
  },
  async 'a newer profile keeps zoom and selection by name; a path zooms, too'(newPage) {
    const page = await openGraph(newPage);
    await show(page, SMALL);
    await page.mouse.click(600, 27); // read
    await show(page, ['main', 0, ['more', 900], ['read', 100, ['deep', 10]]]);
    assert.deepEqual(await places(page), [
      ['main', 0, 0, 800],
      ['read', 0, ROW, 800],
      ['deep', 0, 2 * ROW, 73],
    ]);
    assert.equal(await page.$eval('.flame-selected', (e) => e.style.top), `${ROW}px`);
    await show(page, ['main', 0, ['more', 900]]); // does not have it
    assert.deepEqual(await names(page), ['main', 'more']);
    await show(page, SMALL);
    assert.deepEqual(await names(page), ['main', 'read']);
    await page.evaluate(() => graph.zoomTo([]));
    await drawn(page);
    assert.equal((await names(page)).length, 4);
    await page.evaluate(() => graph.zoomTo(['work', 'inner']));
    await drawn(page);
    assert.deepEqual((await names(page)).sort(), ['inner', 'main', 'work']);
  },
  async 'no name breaks out of its frame'(newPage) {
    const page = await openGraph(newPage);
    const hostile = {
      html: '<img src=x onerror="window.hit = 1">',
      lines: 'a\nb\r\0c\u001b[31md\u2028e',
      reversed: 'safe\u202egpj.exe\u2066x',
      long: `std::vector<${'x'.repeat(65536)}>`,
      piled: `z${'\u0301'.repeat(500)}y`,
      half: 'a\ud800b',
      hebrew: 'שלום',
    };
    await show(page, ['p', 0, ...Object.values(hostile).map((name) => [name, 10])]);
    const boxes = await page.evaluate(() => graph.boxes());
    for (const { name } of boxes) {
      assert.ok(name.length <= 1001, `${name.length} characters`);
      assert.doesNotMatch(name, /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u);
    }
    assert.ok(boxes.some((b) => b.name === 'safe\ufffdgpj.exe\ufffdx'));
    assert.ok(boxes.some((b) => b.name === 'z\u0301\u0301y'));
    const text = async (name) =>
      page.evaluate((name) => graph.text(graph.boxes().find((b) => b.name.includes(name))), name);
    assert.ok((await text('std::vector')).length < 1100);
    assert.equal(await text('שלום'), '\u2068שלום\u2069 (program) — 10 (14.3 %), itself 10');
    // each label is within its frame: the last four pixels of a frame have no text
    for (const { x, y, width } of boxes)
      assert.equal(
        await page.evaluate((part) => ink(part), { x: x + width - 4, y, width: 4, height: ROW }),
        0,
      );
    for (const b of boxes) await page.evaluate((node) => graph.select(node), b.node);
    assert.deepEqual(await page.$$eval('#graph img, #graph b', (all) => all.length), 0);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    await picture(page, 'hostile');
  },
  async 'short names are drawn, full ones said'(newPage) {
    const page = await openGraph(newPage);
    await show(page, ['p', 0, ['std::vector<int, std::allocator<int> >::push_back', 10]]);
    await page.evaluate(async () => (graph.set({ short: true }), await drawn()));
    assert.deepEqual(await names(page), ['p', 'std::vector<…>::push_back']);
    assert.match(
      await page.evaluate(() => graph.text({ node: 1, rest: 0 })),
      /^std::vector<int, std::allocator<int> >::push_back \(program\) — /,
    );
  },
  async 'a stack of 2,000 frames is drawn as far as it is scrolled'(newPage) {
    const page = await openGraph(newPage);
    await page.evaluate(async () => {
      let tree = ['leaf', 1];
      for (let i = 1999; i > 0; i--) tree = [`f${i}`, 0, tree];
      graph.show(profileOf(tree));
      await drawn();
    });
    const height = () => page.$eval('canvas', (e) => e.clientHeight);
    assert.equal(await page.$eval('.flame-frames', (e) => e.clientHeight), 2000 * ROW);
    assert.ok((await height()) < 2000);
    await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
    await until(() => page.evaluate(() => scrollY + innerHeight > 2000 * 18 - 2));
    await drawn(page);
    assert.ok((await height()) < 2000);
    assert.equal(
      await page.evaluate(() => pixel(400, 2000 * 18 - 9)),
      await page.evaluate(() => rgb(box('leaf').colour)),
    );
  },
  async 'an element that changes its width, and pixels of half the size'(newPage) {
    const page = await openGraph(newPage, { deviceScaleFactor: 2 });
    await show(page, SMALL);
    assert.equal(await page.$eval('canvas', (e) => e.width), 1600);
    await page.$eval('#graph', (e) => (e.style.width = '400px'));
    await until(() => page.$eval('canvas', (e) => e.width === 800 && e.clientWidth === 400));
    assert.deepEqual((await places(page))[3], ['read', 240, ROW, 120]);
    assert.equal(
      await page.evaluate(() => pixel(340, 27)),
      await page.evaluate(() => rgb(box('read').colour)),
    );
  },
  async '1,000,000 nodes: each zoom shows the right frames, and few of them'(newPage) {
    const page = await openGraph(newPage, { width: 1200, height: 800 });
    const found = await page.evaluate(async () => {
      const shown = largeProfile(1e6);
      const { n, fn, depth, end, total, functions } = shown;
      const wrong = [];
      graph.show(shown);
      await drawn();
      for (let node = 0; ; ) {
        const boxes = graph.boxes();
        const scale = 1200 / total[node];
        const perRow = new Map();
        for (const b of boxes) {
          const isCaller = b.node < node;
          const width = isCaller ? 1200 : b.rest ? b.width : total[b.node] * scale;
          perRow.set(b.y, (perRow.get(b.y) ?? 0) + b.width);
          if (Math.abs(b.width - width) > 1e-6) wrong.push(`width ${b.width}, not ${width}`);
          if (b.y !== depth[b.node] * 18) wrong.push(`row ${b.y} of depth ${depth[b.node]}`);
          if (!b.rest && b.name !== functions.names[fn[b.node]]) wrong.push(`name ${b.name}`);
          if (isCaller && end[b.node] < end[node]) wrong.push(`${b.node} is no caller of ${node}`);
          if (!isCaller && b.node >= end[node]) wrong.push(`${b.node} is not below ${node}`);
        }
        for (const [y, width] of perRow) if (width > 1200.001) wrong.push(`row ${y} has ${width}`);
        if (boxes.length > 100_000) wrong.push(`${boxes.length} boxes`);
        // all children of the zoomed frame that are wide enough are there
        for (let i = node + 1; i < end[node] && total[i] * scale >= 0.5; i = end[i])
          if (!boxes.some((b) => b.node === i)) wrong.push(`${i} is missing`);
        const mark = boxes.find((b) => b.node === node);
        if (pixel(1190, mark.y + 9) !== rgb(mark.colour)) wrong.push(`colour of ${node}`);
        if (end[node] === node + 1) break;
        node = node + 1;
        graph.zoom(node);
        await drawn();
      }
      graph.search((name) => name === functions.names[fn[1]]);
      return { n, wrong, sum: graph.foundSum(), root: total[0] };
    });
    assert.equal(found.n, 1_000_000);
    assert.deepEqual(found.wrong.slice(0, 10), []);
    assert.ok(found.sum > 0 && found.sum < found.root);
  },
  async 'a difference: more, less, new, gone and noise have colours and words'(newPage) {
    const page = await openGraph(newPage);
    await page.evaluate(async () => {
      const hour = { seconds: 3600 };
      const terms = termsOf('on-cpu', false, hour, hour);
      // a tenth of the samples before, so the colours are of shares
      const difference = new Difference(
        differenceOf(
          ['main', 0, ['same', 400], ['more', 200], ['less', 400], ['gone', 200], ['new', 0]],
          ['main', 0, ['same', 4050], ['more', 4000], ['less', 2000], ['gone', 0], ['new', 1950]],
        ),
        terms,
      );
      const { columns } = difference;
      graph.set({ colours: 'difference' });
      graph.show(columns, {
        of: (node) => difference.ofNode(columns, node),
        text: (change) => changeText(change, { ...terms, unit: 'microseconds' }),
      });
      await drawn();
    });
    // of 24,000 (both are as large as the second): 800 pixels
    assert.deepEqual(await places(page), [
      ['main', 0, 0, 800],
      ['same', 0, ROW, 268],
      ['less', 268, ROW, 200],
      ['more', 468, ROW, 200],
      ['gone', 668, ROW, 67],
      ['new', 735, ROW, 65],
    ]);
    const colour = (name) =>
      page.evaluate((name) => {
        const { x, y, colour } = box(name);
        if (pixel(x + 4, y + 2) !== rgb(colour)) return `${colour} is not drawn`;
        return colour;
      }, name);
    const hue = async (name) => Math.round(hueOf(await colour(name)));
    assert.equal(await colour('main'), '#cccccc');
    assert.equal(await colour('same'), '#cccccc');
    assert.equal(await hue('more'), 22);
    assert.equal(await hue('less'), 213);
    assert.equal(await colour('gone'), '#5196ec');
    assert.equal(await colour('new'), '#f58747');
    const text = (name) => page.evaluate((name) => graph.text(box(name)), name);
    assert.equal(
      await text('gone'),
      'gone (program) — 0 (0.0 %), itself 0; now 0.00 %, before 16.7 %: −16.7 points ± 0.37 points',
    );
    assert.match(
      await text('same'),
      /now 33\.8 %, before 33\.3 %: .*, not distinguishable from noise$/,
    );
    await picture(page, 'difference');
    await page.evaluate(() => graph.select(box('new').node));
    assert.match((await rows(page))[1], /^selected new 1,950 16\.3 % now 16\.3 %, before 0\.00 %/);
    await page.evaluate(() => graph.zoom(box('gone').node));
    await drawn(page);
    assert.deepEqual((await places(page))[1], ['gone', 0, ROW, 800]);
  },
  async 'colours by module: one hue for each, kinds for what has none'(newPage) {
    const page = await openGraph(newPage);
    const colours = await page.evaluate(async () => {
      const columns = profileOf(['p', 0, ['[k] read', 10], ['f', 20], ['g', 30]]);
      const { names } = columns.functions;
      const modules = names.map((name) => (name === 'f' || name === 'g' ? '/lib/m.so' : ''));
      const functions = Object.assign(Object.create(columns.functions), { modules });
      graph.show({ ...columns, functions });
      const all = [];
      for (const by of ['kind', 'module', 'difference']) {
        graph.set({ colours: by });
        await drawn();
        all.push(graph.boxes().map((b) => [b.name, b.colour]));
      }
      return all.map(Object.fromEntries);
    });
    const hue = (by, name) => Math.round(hueOf(colours[by][name]));
    assert.equal(hue(0, 'f'), hue(0, 'g'));
    assert.equal(hue(1, 'f'), hue(1, 'g'));
    assert.notEqual(hue(1, 'f'), hue(0, 'f'));
    assert.equal(colours[1].read, colours[0].read);
    assert.deepEqual(colours[2], colours[0]); // it is no difference
  },
  async 'nothing is left of a graph that is destroyed'(newPage) {
    const page = await openGraph(newPage);
    await show(page, SMALL);
    await page.evaluate(() => graph.destroy());
    assert.equal(await page.$eval('#graph', (e) => e.outerHTML), '<div id="graph" class=""></div>');
    await page.setViewportSize({ width: 300, height: 300 });
  },
};

const browser = await launch();
const { passed, failed } = await run(browser, tests);
await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exit(passed && !failed ? 0 : 1);
