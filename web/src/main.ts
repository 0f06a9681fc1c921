// SPDX-License-Identifier: Apache-2.0
// The page: choices -> query -> flame graph, table, and what the data does not know.
import * as api from './api';
import { Chart, color, kinds, percent } from './chart';
import { Choices } from './choices';
import { growth } from './growth';
import { lossText } from './losses';
import { formatValue, functionTable, toTree, type FunctionRow, type Node, type Reply } from './profile';
import './style.css';

const MAX_TABLE_ROWS = 500;
const REFRESH_MS = 10_000;

const element = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const say = (id: string, text: string): void => {
  element(id).textContent = text;
  element(id).hidden = !text;
};

/** What was asked for: a time, or the growth between two. */
interface View {
  reply: Reply;
  before?: Reply;
  times: [number, number] | null;
}

const chart = new Chart(element('chart'), (text) => say('details', text || ' '));
const choices = new Choices(() => void load());
let shown: View | null = null;
let rows: FunctionRow[] = [];
let unit = 'microseconds';
let total = 0;
let order: 'self' | 'total' = 'self';
let asked = 0;
let links: Record<string, string> = {};

async function load(): Promise<void> {
  const turn = ++asked;

  element('busy').hidden = false;
  try {
    const [view] = await Promise.all([ask(), choices.refresh()]);
    if (turn === asked) show(view);
  } catch (e) {
    if (turn === asked) fail(e);
  } finally {
    if (turn === asked) element('busy').hidden = true;
  }
}

async function ask(): Promise<View> {
  const times = choices.growth();
  const s = choices.selection();

  if (!times) return { reply: await api.profile(s), times };
  const [before, reply] = await Promise.all(times.map((t) => api.snapshot(s, t)));
  return { reply, before, times };
}

function fail(e: unknown): void {
  document.body.classList.add('stale'); // what stands there is no answer to this
  if (e instanceof api.SignInError) signIn(e.message);
  else say('error', e instanceof Error ? e.message : String(e));
}

function signIn(why: string): void {
  const dialog = element<HTMLDialogElement>('sign-in');

  if (!dialog.open) dialog.showModal();
  say('sign-in-why', why);
}

function show(view: View): void {
  const { reply } = view;
  const tree = toTree(reply.result, reply.sources);
  let root = tree;

  shown = view;
  document.body.classList.remove('stale');
  say('error', '');
  unit = reply.unit ?? unit;
  rows = root ? functionTable(root) : [];
  if (view.before) root = showGrowth(view, view.before, tree);
  else say('total', tree ? totalText(reply, tree.value) : '');
  total = root?.value ?? 0;
  say('losses', missingText(reply));
  say('estimated', estimatedText(reply, tree?.value ?? 0));
  say('throttled', throttledText(reply));
  say('notes', noteText(view));
  element('empty').hidden = tree !== null || rows.length > 0;
  if (root) chart.draw(root, unit);
  else chart.clear();
  legend(root);
  chart.search(element<HTMLInputElement>('search').value);
  showTable();
  showLinks();
}

/** Only what grew has a place in the graph; the table has both. */
function showGrowth(view: View, before: Reply, after: Node | null): Node | null {
  const g = growth(toTree(before.result, before.sources), after);
  const at = (i: number): string => new Date(view.times![i] * 1000).toLocaleString();

  rows = g.rows;
  say('total', `${formatValue(g.grown, unit)} grown, ${formatValue(g.shrunk, unit)} shrunk, from ${at(0)} to ${at(1)}`);
  return g.root;
}

function totalText(reply: Reply, value: number): string {
  const samples = reply.summary?.samples ?? 0;

  return `${formatValue(value, unit)} in ${samples.toLocaleString()} samples${wholeText(reply)}`;
}

function estimatedText(reply: Reply, value: number): string {
  const e = reply.summary?.estimated;
  const round = (n: number): string => `${Number((100 * n).toPrecision(2))} %`;

  if (!e) return '';
  return `estimated: ${round(e.share)} of what happened was looked at${value ? `, ±${round(e.error / value)}` : ''}`;
}

function throttledText(reply: Reply): string {
  const us = reply.summary?.throttled_us ?? 0;

  return us ? `throttled: the containers' CPU limits held them back for ${formatValue(us, 'microseconds')}` : '';
}

/** Of the leak view: a time that nothing is known of is not one when nothing lived. */
function noteText(view: View): string {
  const notes = [...(view.reply.summary?.notes ?? [])];

  if (view.before && !view.before.summary?.profiles) notes.push('nothing is stored for the first time: all counts as grown');
  else if (view.before && !view.reply.summary?.profiles) notes.push('nothing is stored for the second time: all counts as shrunk');
  return notes.join(' · ');
}

/** From a trace to where it and its logs are shown. */
function showLinks(): void {
  const words = choices.words();

  for (const name of ['trace', 'logs']) {
    const link = element<HTMLAnchorElement>(`link-${name}`);

    link.hidden = !links[name] || !words.trace_id;
    link.href = (links[name] ?? '').replace(/\{(\w+)\}/g, (all, word: string) => (word in words ? encodeURIComponent(words[word]) : all));
  }
}

/** A host as a whole has processes and threads, no stacks. */
function wholeText(reply: Reply): string {
  const percent = reply.summary?.finished_percent;

  return percent == null || reply.result.function_types?.[0] === 'H' ? '' : `, ${percent.toFixed(2)} % with a whole stack`;
}

function missingText(reply: Reply): string {
  const parts = (reply.summary?.losses ?? []).map(lossText);

  if (reply.summary?.truncated) parts.push('too many stacks: the smallest are put together as [others]');
  return parts.join(' · ');
}

function showTable(): void {
  const term = element<HTMLInputElement>('search').value.toLowerCase();
  const found = rows.filter((r) => r.name.toLowerCase().includes(term)).sort((a, b) => b[order] - a[order]);
  const body = element('functions');

  body.replaceChildren(...found.slice(0, MAX_TABLE_ROWS).map(tableRow));
  for (const key of ['self', 'total'] as const) element(`sort-${key}`).parentElement!.ariaSort = key === order ? 'descending' : null;
  say('more', found.length > MAX_TABLE_ROWS ? `${found.length - MAX_TABLE_ROWS} more: search for them` : '');
}

function tableRow(r: FunctionRow): HTMLTableRowElement {
  const row = document.createElement('tr');
  const name = row.insertCell();

  name.textContent = chart.short ? r.short : r.name;
  name.title = r.source ? `${r.name}\n${r.source}` : r.name;
  name.style.borderLeft = `6px solid ${color(r.kind, r.name)}`;
  for (const value of [r.self, r.total]) {
    row.insertCell().textContent = formatValue(value, unit);
    row.insertCell().textContent = percent(value, total);
  }
  row.tabIndex = 0;
  row.addEventListener('click', () => search(r.name));
  row.addEventListener('keydown', (e) => e.key === 'Enter' && search(r.name));
  return row;
}

function search(term: string): void {
  element<HTMLInputElement>('search').value = term;
  chart.search(term);
  showTable();
}

function wire(): void {
  const live = element<HTMLInputElement>('live');

  element('search').addEventListener('input', (e) => search((e.target as HTMLInputElement).value));
  element('reset').addEventListener('click', () => {
    search('');
    chart.resetZoom();
  });
  element('reload').addEventListener('click', () => void load());
  for (const key of ['self', 'total'] as const)
    element(`sort-${key}`).addEventListener('click', () => {
      order = key;
      showTable();
    });
  element('sign-in-form').addEventListener('submit', () => {
    api.setToken(element<HTMLInputElement>('token').value);
    void load();
  });
  element<HTMLInputElement>('short').addEventListener('change', (e) => {
    chart.short = (e.target as HTMLInputElement).checked;
    if (shown) show(shown);
  });
  window.setInterval(() => live.checked && !document.hidden && void load(), REFRESH_MS);
}

/** The colours of the graph that is shown. */
function legend(root: Node | null): void {
  const found = new Set<string>();
  const visit = (n: Node): void => {
    found.add(n.kind);
    n.children.forEach(visit);
  };

  if (root) visit(root);
  element('legend').replaceChildren(
    ...Object.entries(kinds).filter(([kind]) => found.has(kind)).map(([kind, { label }]) => {
      const item = document.createElement('span');
      item.textContent = label;
      item.style.borderLeft = `12px solid ${color(kind, label)}`;
      return item;
    }),
  );
}

async function start(): Promise<void> {
  wire();
  try {
    const i = await api.info();
    say('version', `${i.version}${i.cluster_name ? ` · ${i.cluster_name}` : ''}`);
    element(i.auth_required ? 'empty-local' : 'empty-cluster').hidden = true;
    say('store-note', i.store_note);
    links = i.links ?? {};
    element('token-hint').textContent = i.token_hint;
    if (i.auth_required && !api.hasToken()) {
      signIn('');
      return;
    }
  } catch (e) {
    fail(e);
  }
  await load();
}

void start();
