// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { operators, parseFilter, printFilter, type Condition } from './filter';

const is = (tag: string, ...values: string[]): Condition => ({ tag, op: '=', values });

/** Texts of agent/hub/query/filter_test.c with what the hub understands. */
const asConditions: [string, ...Condition[]][] = [
  [''],
  ['  \t\n'],
  ["pod_cluster='prod-cluster' AND pod_ns='app'",
    is('pod_cluster', 'prod-cluster'), is('pod_ns', 'app')],
  ["pod!='a' AND pod<>'b'",
    { tag: 'pod', op: '!=', values: ['a'] }, { tag: 'pod', op: '!=', values: ['b'] }],
  ["process_id='10'", is('process_id', '10')],
  ['pod IN (\'a\',\'b\' , "c")', { tag: 'pod', op: 'IN', values: ['a', 'b', 'c'] }],
  ["pod not in ('a')", { tag: 'pod', op: 'NOT IN', values: ['a'] }],
  ["pod REGEXP '^a.*$' And pod Not Regexp 'x\\.y'",
    { tag: 'pod', op: 'REGEXP', values: ['^a.*$'] },
    { tag: 'pod', op: 'NOT REGEXP', values: ['x\\.y'] }],
  ["`k8s.label.a``b`='x'", is('k8s.label.a`b', 'x')],
  ["`k8s.label.git_commit_id`='abc'", is('k8s.label.git_commit_id', 'abc')],
  ["k8s.label.app.kubernetes.io/name='x'", is('k8s.label.app.kubernetes.io/name', 'x')],
  ["pod='it''s'", is('pod', "it's")],
  ["pod='it\\'s \\\\ \\d'", is('pod', "it's \\ \\d")],
  ['pod="say ""hi"""', is('pod', 'say "hi"')],
  ["pod='\"\"' and pod=\"''\"", is('pod', '""'), is('pod', "''")],
  ["pod=''", is('pod', '')],
  ['pod=12', is('pod', '12')],
  ['pod IN (-1,2.5)', { tag: 'pod', op: 'IN', values: ['-1', '2.5'] }],
  ["pod='中'", is('pod', '中')],
  ["pod='a\\nb\\tc\\rd'", is('pod', 'a\nb\tc\rd')],
];

/** Texts that say more than conditions can, and texts that the hub refuses. */
const asText = [
  "pod_ns='a' or pod_ns='b'",
  "(pod_ns='a' OR pod_ns='b') AND pod='c'",
  "NOT pod_ns='a' AND pod='c'",
  'process_id>=10 and process_id<20',
  "pod LIKE 'web-*'",
  'pod IS NULL',
  'exist(pod)',
  'pod_ns', 'pod_ns=', 'pod_ns=app', "pod_ns='app", "pod_ns='app' pod='x'", "pod_ns='app' AND",
  "pod_ns='app')", "(pod_ns='app'", '()', "pod='x' OR 1=1", "'a'='a'", "pod='x'; DROP TABLE s",
  "pod='x' -- c", "pod='x' /* c */", "pod=='x'", "pod IN 'x'", 'pod IN ()', "pod IN ('a' 'b')",
  "pod NOT 'x'", "pod IS 'x'", 'exist pod', "`pod='x'", 'pod between 1 and 2', "``='x'", "pod='x''",
  "pod='x\\'", "\u00a0pod='x'", "AND='x'", "not='x'", "pod IN ('a',)", "pod `in` ('a')",
];

test('conditions that are all required become conditions', () => {
  for (const [text, ...conditions] of asConditions)
    assert.deepEqual(parseFilter(text), { conditions }, text);
});

test('anything else stays text, byte for byte', () => {
  for (const text of [...asText, `pod='${'x'.repeat(65536)}'`]) {
    assert.deepEqual(parseFilter(text), { text });
    assert.equal(printFilter({ text }), text);
  }
});

test('conditions are printed as a person would write them', () => {
  const printed = (text: string): string => printFilter(parseFilter(text));

  assert.equal(printed(''), '');
  for (const text of [
    "pod_ns='app' AND pod!='web-1'",
    "pod IN ('a', 'b') AND image NOT IN ('c')",
    "pod REGEXP '^web-\\d+\\.x$' AND thread NOT REGEXP '\\\\n'",
    "k8s.label.app.kubernetes.io/name='x' AND `k8s.label.ä`='it\\'s'",
  ])
    assert.equal(printed(text), text);
});

/** Numbers from 0 up to 1, the same in every run. */
function random(): () => number {
  let state = 1;

  return () => (state = (state * 48271) % 2147483647) / 2147483647;
}

test('what is printed means the same, whatever tags and values contain', () => {
  const next = random();
  const pick = <T>(of: readonly T[]): T => of[Math.floor(next() * of.length)];
  const pieces = ["'", '"', '`', '\\', '\n', '\t', '\r', 'n', 't', 'd', ' ', '(', ',', '=', '中',
    '\u202e', '\ud83d\ude00', 'AND', "' OR pod='", '%', '<img>', '\\d', '\u0001', '/', ':'];
  const text = (): string => Array.from({ length: Math.floor(next() * 6) }, () => pick(pieces))
    .join('');
  const condition = (): Condition => {
    const op = pick(operators);
    const values = op.endsWith('IN') ? [text(), text(), text()] : [text()];
    return { tag: pick(['pod', 'not', `k8s.label.${text()}x`]), op, values };
  };

  for (let i = 0; i < 3000; i++) {
    const filter = { conditions: Array.from({ length: Math.floor(next() * 4) }, condition) };
    assert.deepEqual(parseFilter(printFilter(filter)), filter);
  }
});
