// SPDX-License-Identifier: Apache-2.0
// The page: choices -> query -> flame graph, table, and notes on what the data lacks.
import * as api from './api';
import { Choices } from './choices';
import { colour, css, kinds } from './flame/colours';
import { FlameGraph } from './flame/flame';
import { lossText } from './words/losses';
import type { Columns } from './profile/columns';
import { growth } from './profile/growth';
import { inert, shorten } from './profile/names';
import { functionTable, matcher, termOf, type FunctionRow } from './profile/table';
import { fromTree } from './profile/tree';
import { formatValue, percent } from './profile/values';
import './style.css';
import { Timeline } from './timeline/timeline';

const MAX_TABLE_ROWS = 500;
const REFRESH_MS = 10_000;

const element = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const say = (id: string, text: string): void => {
  element(id).textContent = text;
  element(id).hidden = !text;
};

/** What the query was about: a stretch of time, or the growth between two moments. */
interface View {
  reply: api.Reply;
  selection: api.Selection;
  times: [number, number] | null;
}

const details = (text: string): void => say('details', text || ' ');
const graph = new FlameGraph(element('chart'), {
  value: (value) => formatValue(value, unit),
  onHover: (frame) => details(frame ? graph.text(frame) : foundText()),
  onSelect: (node) => details(graph.text({ node, rest: 0 })),
});
const choices = new Choices(() => {
  document.body.classList.add('stale'); // what stands there answers another question
  graph.forgetZoom();
  void load();
});
const timeline = new Timeline(element('timeline'), {
  onGroup: (tag) => {
    choices.group(tag);
    void load();
  },
  onTimes: (from, to) => choices.setTimes(from, to),
  canNarrow: (tag) => choices.has(tag),
  onNarrow: (tag, value) => choices.set(tag, value),
});
let about: api.Info | null = null;
let offered = false; // the choices of tags that only some events have
let columns: Columns | null = null; // of the graph
let rows: FunctionRow[] = [];
let unit = 'microseconds';
let total = 0;
let order: 'self' | 'total' = 'self';
let sought = '';
let isShort = false;
let current: AbortController | null = null; // null: nothing is under way

/** Only the newest query counts: an earlier one is aborted, and its answer changes nothing. */
async function load(): Promise<void> {
  const turn = new AbortController();

  current?.abort();
  current = turn;
  element('busy').hidden = false;
  try {
    await introduce(turn.signal);
    const answer = ask(turn.signal);
    const filled = choices.refresh(turn.signal).catch((e) => e);
    const drawn = showTimeline(turn.signal).catch((e) => e);
    show(await answer);
    const failed = (await filled) ?? (await drawn);
    if (current === turn) tell(failed);
  } catch (e) {
    if (current === turn) fail(e);
  } finally {
    if (current === turn) {
      current = null;
      element('busy').hidden = true;
    }
  }
}

/** What the hub says about itself, once it answers. */
async function introduce(signal: AbortSignal): Promise<void> {
  if (!about) {
    about = await api.info(signal);
    say('version', `${about.version}${about.cluster_name ? ` · ${about.cluster_name}` : ''}`);
    element(about.auth_required ? 'empty-local' : 'empty-cluster').hidden = true;
    say('store-note', about.store_note);
    element('token-hint').textContent = about.token_hint;
  }
  if (about.auth_required && !api.hasToken()) throw new api.SignInError('');
  if (!offered) choices.offer(await api.tagsOfEvents(signal));
  offered = true;
}

async function ask(signal: AbortSignal): Promise<View> {
  const times = choices.growth();
  const selection = choices.selection();
  const [before, after] = times?.map((t) => api.snapshot(selection, t)) ?? [null, selection];

  return { reply: await api.profile(after!, before, signal), selection, times };
}

async function showTimeline(signal: AbortSignal): Promise<void> {
  const { tags, tag } = choices.groupings();
  const times = choices.times();

  timeline.show(await api.series(choices.span(), tag, signal), times, tags, tag);
}

function fail(e: unknown): void {
  document.body.classList.add('stale'); // what stands there is no answer to this
  tell(e);
}

function tell(e: unknown): void {
  if (e instanceof api.SignInError) signIn(e.message);
  else if (e) say('error', e instanceof Error ? e.message : String(e));
}

function signIn(why: string): void {
  const dialog = element<HTMLDialogElement>('sign-in');

  say('error', '');
  if (!dialog.open) dialog.showModal();
  say('sign-in-why', why);
}

function show(view: View): void {
  const { reply, times } = view;
  const answer = fromTree(reply.result);

  document.body.classList.remove('stale');
  say('error', '');
  unit = reply.unit ?? unit;
  columns = times ? showGrowth(times, answer) : showAll(view, answer);
  total = columns?.total[0] ?? 0;
  say('losses', ofBoth(view, missing));
  say('estimated', estimatedText(view, answer?.total[0] ?? 0));
  say('throttled', throttledText(reply));
  say('notes', noteText(view));
  element('empty').hidden = answer !== null;
  legend();
  graph.show(columns);
  details(foundText());
  showTable();
  showLinks();
}

function showAll(view: View, answer: Columns | null): Columns | null {
  rows = answer ? functionTable(answer) : [];
  say('total', answer ? totalText(view, answer.total[0]) : '');
  return answer;
}

/** The graph shows only what grew; the table also shows what shrank. */
function showGrowth(times: [number, number], answer: Columns | null): Columns | null {
  const g = growth(answer);
  const [from, to] = times.map((t) => new Date(t * 1000).toLocaleString());

  rows = g.rows;
  say(
    'total',
    `${formatValue(g.grown, unit)} grown, ${formatValue(g.shrunk, unit)} shrunk, ` +
      `from ${from} to ${to}`,
  );
  return g.columns;
}

function totalText({ reply, selection }: View, value: number): string {
  const { samples = 0, finished_percent: whole } = reply.summary ?? {};
  const isHost = selection.app_service === 'Total'; // which has processes, but no stacks

  return (
    `${formatValue(value, unit)} in ${samples.toLocaleString()} samples` +
    (whole == null || isHost ? '' : `, ${whole.toFixed(2)} % with a whole stack`)
  );
}

/** A difference has the errors of both selections, and no share. */
function estimatedText({ reply, times }: View, value: number): string {
  const all = [reply.summary, reply.before_summary].flatMap((s) => s?.estimated ?? []);
  const error = Math.hypot(...all.map((e) => e.error));
  const round = (n: number): string => `${Number((100 * n).toPrecision(2))} %`;
  let range = '';

  if (all.length === 0) return '';
  if (times) range = `, ±${formatValue(error, unit)}`;
  else if (value) range = `, ±${round(error / value)}`;
  const share = round(Math.min(...all.map((e) => e.share)));
  return `estimated: ${share} of what happened was measured${range}`;
}

function throttledText(reply: api.Reply): string {
  const us = reply.summary?.throttled_us ?? 0;

  return us
    ? `throttled: the containers' CPU limits held them back for ${formatValue(us, 'microseconds')}`
    : '';
}

/** The notes of an answer. In the leak view, a note of only one time says which one. */
function ofBoth({ reply }: View, said: (summary: api.Summary) => string[]): string {
  const second = reply.summary ? said(reply.summary) : [];
  const first = reply.before_summary ? said(reply.before_summary) : second;
  const only = (when: string, own: string[], other: string[]): string[] =>
    own.filter((t) => !other.includes(t)).map((t) => `${when} time: ${t}`);

  return [
    ...second.filter((t) => first.includes(t)),
    ...only('first', first, second),
    ...only('second', second, first),
  ].join(' · ');
}

/** Notes of the leak view: no data for a time does not mean that no memory was live then. */
function noteText(view: View): string {
  const { before_summary: first, summary: second } = view.reply;
  const notes = [ofBoth(view, (s) => s.notes ?? [])];

  if (first && !first.profiles)
    notes.push('nothing is stored for the first time: everything counts as grown');
  else if (first && !second?.profiles)
    notes.push('nothing is stored for the second time: everything counts as shrunk');
  return notes.filter(Boolean).join(' · ');
}

/** Links from a trace to the pages that show it and its logs. */
function showLinks(): void {
  const words = choices.words();

  for (const name of ['trace', 'logs'] as const) {
    const link = element<HTMLAnchorElement>(`link-${name}`);

    const template = about?.links?.[name] ?? '';

    link.hidden = !template || !words.trace_id;
    link.href = template.replace(/\{(\w+)\}/g, (all, word: string) =>
      word in words ? encodeURIComponent(words[word]) : all,
    );
  }
}

function missing({ losses = [], cut_stacks: cut, short_by: short }: api.Summary): string[] {
  const parts = losses.map(lossText);

  if (short !== undefined)
    parts.push(
      'too many stacks: the smallest are added up as [others]' +
        (short
          ? `, and another stack's value is too small by at most ${formatValue(short, unit)}`
          : ''),
    );
  if (cut)
    parts.push(
      `too many frames: ${cut.toLocaleString()} of the smallest stacks end in [smaller stacks]; ` +
        'all totals are complete',
    );
  return parts;
}

/** The rows with the greatest values, also of what shrank. */
function showTable(): void {
  const matches = matcher(sought);
  const found = rows
    .filter((r) => matches(r.name, r.kind))
    .sort(
      (a, b) => Math.abs(b[order]) - Math.abs(a[order]) || Math.abs(b.total) - Math.abs(a.total),
    );
  const body = element('functions');

  body.replaceChildren(
    ...found
      .slice(0, MAX_TABLE_ROWS)
      .sort((a, b) => b[order] - a[order])
      .map(tableRow),
  );
  for (const key of ['self', 'total'] as const)
    element(`sort-${key}`).parentElement!.ariaSort = key === order ? 'descending' : null;
  say(
    'more',
    found.length > MAX_TABLE_ROWS ? `${found.length - MAX_TABLE_ROWS} more: search for them` : '',
  );
}

function tableRow(r: FunctionRow): HTMLTableRowElement {
  const row = document.createElement('tr');
  const name = row.insertCell();

  name.textContent = inert(isShort ? shorten(r.name) : r.name);
  name.title = [r.name, kinds[r.kind]?.label, r.source]
    .flatMap((text) => (text ? inert(text) : []))
    .join('\n');
  name.style.borderLeft = `6px solid ${css(colour(r.kind, r.name))}`;
  for (const value of [r.self, r.total]) {
    row.insertCell().textContent = formatValue(value, unit);
    row.insertCell().textContent = percent(value, total);
  }
  row.tabIndex = 0;
  row.addEventListener('click', () => search(termOf(r)));
  row.addEventListener('keydown', (e) => e.key === 'Enter' && search(termOf(r)));
  return row;
}

function search(term: string): void {
  const input = element<HTMLInputElement>('search');

  sought = term;
  if (input.value !== term) input.value = term;
  graph.search(term === '' ? null : matcher(term));
  details(foundText());
  showTable();
}

function foundText(): string {
  const sum = graph.foundSum();

  return sought && columns ? `found: ${formatValue(sum, unit)} (${percent(sum, total)})` : '';
}

function wire(): void {
  const live = element<HTMLInputElement>('live');

  element('search').addEventListener('input', (e) => search((e.target as HTMLInputElement).value));
  element('reset').addEventListener('click', () => {
    search('');
    graph.zoom(0);
  });
  element('reload').addEventListener('click', () => void load());
  for (const key of ['self', 'total'] as const)
    element(`sort-${key}`).addEventListener('click', () => {
      order = key;
      showTable();
    });
  element('sign-in-form').addEventListener('submit', (e) => {
    e.preventDefault(); // which would close it also where load() has opened it again
    element<HTMLDialogElement>('sign-in').close();
    api.setToken(element<HTMLInputElement>('token').value);
    element<HTMLInputElement>('token').value = '';
    void load();
  });
  element<HTMLInputElement>('short').addEventListener('change', (e) => {
    isShort = (e.target as HTMLInputElement).checked;
    graph.set({ short: isShort });
    showTable();
  });
  element<HTMLInputElement>('upward').addEventListener('change', (e) =>
    graph.set({ upward: (e.target as HTMLInputElement).checked }),
  );
  window.setInterval(() => live.checked && !document.hidden && !current && void load(), REFRESH_MS);
}

/** Shows the colours that the graph uses. */
function legend(): void {
  const used = new Set<string>();

  columns?.fn.forEach((fn) => used.add(columns!.functions.kinds[fn]));
  element('legend').replaceChildren(
    ...Object.entries(kinds).filter(([kind]) => used.has(kind)).map(([kind, { label }]) => {
      const item = document.createElement('span');
      item.textContent = label;
      item.style.borderLeft = `12px solid ${css(colour(kind, label))}`;
      return item;
    }),
  );
}

wire();
void load();
