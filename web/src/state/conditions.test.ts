// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import {
  askedOf, conditionsOf, offeredBy, slotsOf, valuesFor, withAsked, withCondition,
} from './conditions';
import { parseFilter, printFilter } from './filter';

const selected = (text: string, process = '') => ({ process, filter: parseFilter(text) });

/** The selection after a change, as text. */
function after(text: string, process: string, at: number, next: string | null): string[] {
  const old = selected(text, process);
  const filter = next === null ? null : parseFilter(next);
  const condition = filter && 'conditions' in filter ? filter.conditions[0] : null;
  const now = { ...old, ...withCondition(old, at, condition) };

  return [now.process, printFilter(now.filter)];
}

test('the chosen process is the first condition', () => {
  assert.equal(
    printFilter({ conditions: conditionsOf(selected("pod='a'", 'java')) }),
    "app_service='java' AND pod='a'",
  );
  assert.deepEqual(conditionsOf(selected("pod='a' OR pod='b'")), []);
});

test('a condition is changed, removed and added in its place', () => {
  const text = "pod='a' AND image='i'";

  assert.deepEqual(after(text, '', 0, "pod!='b'"), ['', "pod!='b' AND image='i'"]);
  assert.deepEqual(after(text, '', 1, null), ['', "pod='a'"]);
  assert.deepEqual(after(text, '', 2, "thread='t'"), ['', `${text} AND thread='t'`]);
  assert.deepEqual(after(text, 'java', 1, null), ['java', "image='i'"]);
  assert.deepEqual(after(text, 'java', 3, "thread='t'"), ['java', `${text} AND thread='t'`]);
});

test('one process is the process of the selection, anything else about it is in the filter', () => {
  assert.deepEqual(after("pod='a'", '', 1, "app_service='java'"), ['java', "pod='a'"]);
  assert.deepEqual(after("pod='a'", 'java', 0, "app_service='nginx'"), ['nginx', "pod='a'"]);
  assert.deepEqual(after("pod='a'", 'java', 0, null), ['', "pod='a'"]);
  assert.deepEqual(
    after("pod='a'", 'java', 0, "app_service!='java'"),
    ['', "app_service!='java' AND pod='a'"],
  );
  assert.deepEqual(
    after("pod='a'", 'java', 2, "app_service='nginx'"),
    ['java', "pod='a' AND app_service='nginx'"],
  );
  assert.deepEqual(
    after("app_service='x'", '', 0, "app_service='y'"),
    ['y', ''],
  );
});

test('to remove a condition that is not there changes nothing', () => {
  const text = "pod='a' OR pod='b'";

  assert.deepEqual(after(text, '', 0, null), ['', text]);
  assert.deepEqual(after(text, 'java', 0, null), ['', text]);
  assert.deepEqual(after("pod='a'", '', 1, null), ['', "pod='a'"]);
});

test('usual tags have a place each, in their order; conditions on others follow', () => {
  const { filter } = selected("image='i' AND pod!='b' AND pod!='c'");
  const slots = slotsOf(conditionsOf({ process: '', filter }), ['pod_ns', 'pod']);

  assert.deepEqual(
    slots.map(({ tag, at, condition }) => [tag, at, condition?.values[0] ?? null]),
    [['pod_ns', 3, null], ['pod', 1, 'b'], ['pod', 2, 'c'], ['image', 0, 'i']],
  );
});

test('an operator for one value keeps the first of a list', () => {
  assert.deepEqual(valuesFor('NOT IN', ['a', 'b']), ['a', 'b']);
  assert.deepEqual(valuesFor('!=', ['a', 'b']), ['a']);
});

test('values are offered under the other conditions, and for what is typed', () => {
  const own = selected("pod='a' AND image='i' AND pod!='b'", 'java');
  const asks = (...args: Parameters<typeof offeredBy>): string[] =>
    Object.values(offeredBy(...args));

  assert.deepEqual(asks(own, 'pod', '=', ''), ['java', "image='i'"]);
  assert.deepEqual(asks(own, 'pod', '!=', 'we'), ['java', "image='i' AND pod LIKE '%we%'"]);
  assert.deepEqual(
    asks(own, 'pod', 'NOT REGEXP', '^w\\d'),
    ['java', "image='i' AND pod REGEXP '^w\\d'"],
  );
  assert.deepEqual(asks(selected('', 'java'), 'app_service', '=', ''), ['', '']);
  assert.deepEqual(
    asks(selected('', ''), 'k8s.label.a b', 'IN', "5%_*\\'"),
    ['', "`k8s.label.a b` LIKE '%5\\%\\_\\*\\\\\\\\\\'%'"],
  );
  assert.deepEqual(
    asks(selected("pod='a' OR pod='b'"), 'app_service', '=', 'x'),
    ['', "(pod='a' OR pod='b') AND app_service LIKE '%x%'"],
  );
});

test('a condition on a tag that the event does not have waits for another event', () => {
  const tags = [{ tag: 'wait', label: 'Waits for', events: ['off-cpu'] }];
  const { filter } = selected("wait='lock' AND pod='a'");
  const asked = (event: string): string => printFilter(askedOf(filter, tags, event));
  const typed = (text: string): string =>
    printFilter(withAsked(filter, tags, 'on-cpu', parseFilter(text)));

  assert.equal(asked('off-cpu'), "wait='lock' AND pod='a'");
  assert.equal(asked('on-cpu'), "pod='a'");
  assert.equal(typed("pod='b'"), "pod='b' AND wait='lock'");
  assert.equal(typed('pod IS NULL'), 'pod IS NULL');
});
