// SPDX-License-Identifier: Apache-2.0
// What the tests of the page share: a real `podflame local` that profiles a real busy process, a
// real Chromium, made answers of a hub, and what the page shows. All that they write lies in one
// directory under /tmp.
import { spawn, execFileSync } from 'node:child_process';
import { mkdtempSync, writeFileSync, rmSync } from 'node:fs';
import { constants, setPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BUILD, until, within } from './chromium.mjs';

const dir = mkdtempSync(join(tmpdir(), 'podflame-page-'));
const children = [];

function start(command, args, options) {
  const child = spawn(command, args, options);
  children.push(child);
  return child;
}

// Ends a child.
async function end(child, signal) {
  const ended = new Promise((done) => child.once('exit', done));

  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill(signal);
  await within(120, `the end of ${child.spawnfile}`, ended);
}

// Ends what was started here, and removes its files.
export async function stopAll() {
  try {
    await Promise.all(children.map((c) => end(c, 'SIGTERM')));
  } finally {
    for (const c of children) c.kill('SIGKILL');
    rmSync(dir, { recursive: true, force: true });
  }
}

// Kills the hub, as a crash would.
export const stopLocal = () => end(local, 'SIGKILL');

let workload = null;

export function buildWorkload() {
  writeFileSync(join(dir, 'w.c'), `
    static volatile unsigned long sink;
    #define FUNCTION __attribute__((noinline)) void
    FUNCTION hot_function(void) { for (int i = 0; i < 3000000; i++) sink += i; sink++; }
    FUNCTION cold_function(void) { for (int i = 0; i < 1000000; i++) sink ^= i; sink++; }
    int main(void) { for (;;) { hot_function(); cold_function(); } }`);
  execFileSync('gcc', ['-O0', '-o', join(dir, 'pagework'), join(dir, 'w.c')]);
  workload = start(join(dir, 'pagework'), [], { stdio: 'ignore' });
}

// Builds and starts e2e/trace/request.c. `trace` gives the id of one of its traces. `serve` lets it
// serve its request, and gives how many microseconds that took.
export function startRequest() {
  const program = join(dir, 'pagecall');
  const source = fileURLToPath(new URL('../e2e/trace/request.c', import.meta.url));
  execFileSync('gcc', ['-rdynamic', '-mtls-dialect=gnu2', '-o', program, source, '-lpthread']);
  const child = start(program, [], { stdio: ['pipe', 'pipe', 'ignore'] });
  return {
    trace: (n) => child.pid.toString(16).padStart(8, '0') + String(n).padStart(24, '0'),
    serve: () =>
      within(60, 'a request', new Promise((done) => {
        child.stdout.on('data', (said) => done(Number(said)));
        child.stdin.end('\n');
      })),
  };
}

let local = null;

// Starts the hub, with what it has stored so far. Port 0: any.
export function startLocal(port = 0) {
  writeFileSync(
    join(dir, 'c.yaml'),
    `window: 2s\napi: {port: ${port}}\nstore: {note: "kept for this test only"}\n` +
      'trace_context: true\nstatic_config: {ebpf: {' +
      'on-cpu-profile: {frequency: 199, regex: ^page(work|call)}, ' +
      'off-cpu-profile: {disabled: false, regex: ^pagecall}}}\n',
  );
  local = start(
    join(BUILD, 'podflame'),
    ['local', '--config', join(dir, 'c.yaml'), '--data', join(dir, 'data')],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );

  return within(120, 'the address that podflame local says', new Promise((resolve, reject) => {
    let said = '';
    local.stderr.on('data', (d) => {
      said += d;
      const m = /http:\/\/127\.0\.0\.1:(\d+)\//.exec(said);
      if (m) resolve(`http://127.0.0.1:${m[1]}`);
    });
    local.on('exit', (code) => reject(new Error(`podflame local ended with ${code}: ${said}`)));
  }));
}

// Waits until the page's own query answers with some CPU seconds of the workload, so that shares
// mean something. The first windows have samples from before the files of the process were read.
// From then on the workload has only what CPU time is left.
export async function waitForData(origin) {
  let samples = 0;
  for (const end = Date.now() + 180_000; Date.now() < end; ) {
    const now = Math.floor(Date.now() / 1000);
    const r = await fetch(`${origin}/v1/profile/ProfileTracing`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({
        profile_event_type: 'on-cpu',
        profile_language_type: 'eBPF',
        time_start: now - 600,
        time_end: now,
        app_service: 'pagework',
      }),
    });
    const reply = await r.json();
    samples = reply.summary?.samples ?? 0;
    if (
      samples >= 400 &&
      ['hot_function', 'cold_function'].every((f) =>
        reply.result.some((n) => n.profile_location_str === f),
      )
    )
      return setPriority(workload.pid, constants.priority.PRIORITY_LOW);
    await new Promise((done) => setTimeout(done, 500));
  }
  throw new Error(`${samples} samples of pagework within 180 s`);
}

// The window of a test's page.
export const VIEW = { viewport: { width: 1200, height: 900 } };
// The frames that the graph shows.
export const boxes = (page) => page.$$eval('#chart', ([e]) => e?.flame.boxes() ?? []);
export const names = async (page) => (await boxes(page)).map((b) => b.name);
export const shows = (page, name) => until(async () => (await names(page)).includes(name));
// The widest frame of a name; null: there is none. The first samples, without tables, have a tower
// of their own.
export const widest = async (page, name) =>
  (await boxes(page)).filter((b) => b.name === name).sort((a, b) => b.width - a.width)[0] ?? null;
const middleOf = async (page, name) => {
  const { x, y, width, height } = await widest(page, name);
  return { position: { x: x + width / 2, y: y + height / 2 } };
};
// The colour at the right end of a frame.
export const pixelOf = async (page, name) => {
  const { x, y, width } = await widest(page, name);
  return page.$eval(
    '#chart canvas',
    (canvas, at) => {
      const [r, g, b] = canvas.getContext('2d').getImageData(...at, 1, 1).data;
      return `rgb(${r}, ${g}, ${b})`;
    },
    [x + width - 4, y + 2],
  );
};
export const clickFrame = async (page, name) =>
  page.click('#chart canvas', await middleOf(page, name));
export const hoverFrame = async (page, name) =>
  page.hover('#chart canvas', await middleOf(page, name));
// What can be chosen, by tag; the hub says that there is more.
export const choicesAre = (page, values, truncated = false) =>
  page.route('**/v1/profile/choices', (r) => r.fulfill({ json: choicesOf(values, truncated) }));
export const choicesOf = (values, truncated = false) => ({
  result: Object.fromEntries(
    Object.entries(values).map(([tag, all]) => [
      tag,
      { values: all.map((value) => ({ value, samples: 1 })), truncated },
    ]),
  ),
});
// The chip of a tag: what it says of its value.
export const chipOf = (page, tag) => page.textContent(`#choice-${tag} .chip-value`);
// Chooses a value in the list below the chip of its tag.
export const choose = async (page, tag, value) => {
  await page.click(`#choice-${tag}`);
  await page.click(`.popup .combobox-text:text-is("${value}")`);
};
// The values in the list that is open, with their samples.
export const offered = (page) =>
  page.$$eval('.popup [role=option]', (all) =>
    all.map((o) => [...o.children].map((e) => e.textContent).join(' ')));
// The values of a tag while a user types. Returns the questions; `hold` may keep an answer back.
export const valuesAre = async (page, values, hold = () => false) => {
  const questions = [];
  await page.route('**/v1/profile/values', (r) => {
    const question = r.request().postDataJSON();
    const found = values(question.tag_filter);
    questions.push(question);
    if (hold(r)) return undefined;
    return r.fulfill({
      json: {
        result: found.slice(0, 500).map((value) => ({ value, samples: 1 })),
        truncated: found.length > 500,
      },
    });
  });
  return questions;
};
// goto() alone does not load a page again whose address differs only behind the #.
export const open = async (page, address) => {
  await page.goto('about:blank');
  await page.goto(address);
};
// An answer of the hub. A frame is [name, kind, self, ...callees]; an object among its callees has
// more about it: file, line, inlined, samples, and before (self in the other selection of a
// difference).
export const replyOfTree = (tree, { summary = {}, ...members } = {}) => {
  const strings = [], kinds = [], inlined = [];
  const functions = { name: [], kind: [], module: [], file: [], line: [] };
  const nodes = { function: [], depth: [], self: [], samples: [], before: [], before_samples: [] };
  const known = new Map(); // the place of each text and of each function
  const place = (list, key, add) => {
    const name = `${list} ${key}`;
    if (!known.has(name)) known.set(name, add());
    return known.get(name);
  };
  const string = (text) => place('string', text, () => strings.push(text) - 1);
  const kindOf = (text) => place('kind', text, () => kinds.push(text) - 1);
  const functionOf = (name, kind, { file, line = 0 }) =>
    place('function', JSON.stringify([name, kind, file, line]), () => {
      functions.kind.push(kindOf(kind));
      functions.module.push(-1);
      functions.file.push(file ? string(file) : -1);
      functions.line.push(line);
      return functions.name.push(string(name)) - 1;
    });
  const add = ([name, kind, self, ...more], depth) => {
    const callees = more.filter(Array.isArray);
    const about = Object.assign({}, ...more.filter((m) => !Array.isArray(m)));
    if (about.inlined) inlined.push(nodes.self.length);
    nodes.function.push(functionOf(name, kind, about));
    nodes.depth.push(depth);
    nodes.self.push(self);
    nodes.samples.push(about.samples ?? (self ? 1 : 0));
    nodes.before.push(about.before ?? 0);
    nodes.before_samples.push(about.before_samples ?? (about.before ? 1 : 0));
    for (const callee of callees) add(callee, depth + 1);
  };
  add(tree, 0);
  if (!members.before_summary) delete nodes.before, delete nodes.before_samples;
  return {
    OPT_STATUS: 'SUCCESS', DESCRIPTION: '', unit: 'microseconds',
    result: { strings, kinds, functions, nodes, inlined },
    summary: { samples: 9, profiles: 1, ...summary },
    ...members,
  };
};
// The same of a process with functions side by side, each with its own value.
export const replyOf = (functions, { process = 'p', ...members } = {}) =>
  replyOfTree(
    [process, 'root', 0, ...Object.entries(functions).map(([name, self]) => [name, 'app', self])],
    members,
  );
// A difference: of each function its value in the first and in the second selection. Each sample
// has the value 1.
export const differenceOf = (functions, members) =>
  replyOfTree(
    ['web', 'root', 0,
      ['main', 'app', 0,
        ...Object.entries(functions).map(([name, [before, self]]) =>
          [name, 'app', self, { before, samples: self, before_samples: before }])]],
    { unit: 'bytes', before_summary: { samples: 9, profiles: 1 }, ...members },
  );
// Values over time, by the values of a tag.
export const seriesOf = (groups, members) => ({
  result: {
    unit: 'microseconds', start: 0, step: 1, steps: Object.values(groups)[0].length,
    groups: Object.entries(groups).map(([value, values]) => ({ value, values })), others: null,
    losses: [], starts: [], more_starts: false, notes: [], ...members,
  },
});
// Answers each question for a profile. Returns the questions.
export const answersAre = async (page, answer) => {
  const asked = [];
  await page.route('**/v1/profile/tree', (r) => {
    const question = r.request().postDataJSON();
    asked.push(question);
    return r.fulfill({ json: answer(question) });
  });
  return asked;
};
export const filterIs = (asked, filter) => until(() => asked.at(-1)?.tag_filter === filter);
// What follows the # in the address, and one of its words.
export const hash = async (page) => decodeURIComponent(await page.evaluate(() => location.hash));
export const wordOf = (page, word) =>
  new URLSearchParams(new URL(page.url()).hash.slice(1)).get(word);
// The texts of the rows of a table.
export const cells = (page, rows) =>
  page.$$eval(rows, (all) => all.map((r) => [...r.cells].map((c) => c.textContent.trim())));
export const legend = (page) =>
  page.$$eval('#legend > span', (all) => all.map((e) => e.textContent));
// Nothing of the page is beside the window.
export const fits = (page) =>
  page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);
export const table = (page) =>
  page.$$eval('#functions tr', (all) => all.map((r) => r.cells[0].textContent));
export const tableIs = (page, ...names) =>
  until(async () => (await table(page)).join() === names.join());
export const isStale = (page) => page.$eval('main', (e) => e.classList.contains('stale'));
