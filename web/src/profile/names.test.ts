// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { inert, inHubForm, inOwnForm, isolated, shorten } from './names';

test('a name cannot control the text around it', () => {
  assert.equal(inert('a\nb\0c\u001b[31m'), 'a\ufffdb\ufffdc\ufffd[31m');
  assert.equal(inert('safe\u202egpj.exe\u2066\u200f'), 'safe\ufffdgpj.exe\ufffd\ufffd');
  assert.equal(inert('a\ud800'), 'a\ufffd');
  assert.equal(inert(`z${'\u0301'.repeat(9)}`), 'z\u0301\u0301');
});

test('a name stays what it is otherwise', () => {
  for (const name of ['std::vector<int>', 'größe', '関数', 'שלום', '🙂', '<b>'])
    assert.equal(inert(name), name);
});

test('a very long name is cut', () => {
  assert.equal(inert('x'.repeat(65536)).length, 1001);
  assert.equal(inert('x'.repeat(1000)).length, 1000);
  assert.equal(inert(`${'x'.repeat(999)}🙂`), `${'x'.repeat(999)}\ufffd…`);
});

test('letters from the right do not move what stands beside them', () => {
  assert.equal(isolated('שלום'), '\u2068שלום\u2069');
  assert.equal(isolated('f'), 'f');
});

test('type arguments are left out', () => {
  assert.equal(shorten('std::map<int, A<b> >::at(int)'), 'std::map<…>::at(int)');
  assert.equal(shorten('f::h0123456789abcdef'), 'f');
  assert.equal(shorten('A<int>::operator<<'), 'A<…>::operator<<');
});

test('a name of Java is written as Java does', () => {
  assert.equal(inOwnForm('java/lang/String::hashCode', 'jvm'), 'java.lang.String.hashCode');
  assert.equal(inOwnForm('a/b::c', 'python'), 'a/b::c');
  assert.equal(inHubForm('java.lang.String.hashCode', 'jvm'), 'java/lang/String::hashCode');
  assert.equal(inHubForm('a.b.c', 'python'), 'a.b.c');
});
