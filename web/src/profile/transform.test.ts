// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { isFunction, type Columns } from './columns';
import { nodeAt, pathTo } from './path';
import { differenceOf, largeProfile, outline, outlineWithValues, profileOf } from './testing';
import type { Tree } from './testing';
import { transform, type Chosen } from './transform';

const nothing: Chosen = {
  fold: { threads: 'each', recursion: false, libraries: false, runtimes: false },
  hidden: [],
  focus: [],
};
const folded = (fold: Partial<Chosen['fold']>, tree: Tree): string[] =>
  outlineWithValues(transform(profileOf(tree), { ...nothing, fold: { ...nothing.fold, ...fold } }));
const app = (name: string) => ({ name, kind: 'app' });

test('without a choice a profile stays what it is', () => {
  const c = profileOf(['p', 0, ['f', 1, ['f', 2]]]);

  assert.equal(transform(c, nothing), c);
});

test('threads that differ only in numbers are one pool, and a single thread keeps its name', () => {
  const tree: Tree = [
    'p', 0, ['[t] exec-1', 0, ['f', 1, ['g', 2]]], ['[t] exec-17', 4, ['f', 8], ['h', 16]],
    ['[t] gc-2', 1], ['[p] exec-3', 1], ['exec-4', 1],
  ];

  assert.deepEqual(folded({ threads: 'pools' }, tree), [
    'p 34 0', '.exec-N 31 4', '..h 16 16', '..f 11 9', '...g 2 2', '.exec-3 1 1', '.exec-4 1 1',
    '.gc-2 1 1',
  ]);
});

test('without threads, the functions of all threads are one tree', () => {
  assert.deepEqual(
    folded({ threads: 'none' }, [
      'p', 0, ['[t] a', 1, ['f', 2]], ['[t] b', 4, ['f', 8]], ['[p] p', 0, ['main', 16]],
    ]),
    ['p 31 5', '.main 16 16', '.f 10 10'],
  );
});

test('the processes of a host have no stacks: without threads, they stay', () => {
  assert.deepEqual(
    folded({ threads: 'none' }, ['host', 0, ['[p] a', 1, ['[t] b', 2]], ['[p] c', 1]]),
    ['host 4 0', '.a 3 3', '.c 1 1'],
  );
});

test('recursion is one frame: direct, and through one other function', () => {
  assert.deepEqual(
    folded({ recursion: true }, ['p', 0, ['f', 1, ['f', 2, ['f', 4, ['g', 8]], ['g', 16]]]]),
    ['p 31 0', '.f 31 7', '..g 24 24'],
  );
  assert.deepEqual(
    folded({ recursion: true }, ['p', 0, ['a', 1, ['b', 2, ['a', 4, ['b', 8], ['c', 16]]]]]),
    ['p 31 0', '.a 31 5', '..c 16 16', '..b 10 10'],
  );
  const through2: Tree = ['p', 0, ['a', 1, ['b', 2, ['c', 4, ['a', 8]]]]];
  assert.deepEqual(folded({ recursion: true }, through2), folded({}, through2));
});

test('a function and a thread of the same name are no recursion', () => {
  const tree: Tree = ['f', 0, ['[t] f', 1, ['f', 2, ['[k] f', 4]]]];

  assert.deepEqual(folded({ recursion: true }, tree), folded({}, tree));
});

test('consecutive frames of a library are one frame that has its name', () => {
  assert.deepEqual(
    folded({ libraries: true }, [
      'p', 0,
      ['main @/bin/p', 1,
        ['[l] SSL_read @/lib/libssl.so.3', 2,
          ['[u] 0x12 @/lib/libssl.so.3', 4,
            ['[l] read @/lib/libc.so.6', 8, ['[l] SSL_free @/lib/libssl.so.3', 16]]]],
        ['[l] SSL_write @/lib/libssl.so.3', 32, ['[k] write', 64]]],
    ]),
    [
      'p 127 0', '.main 127 1', '..[libssl.so.3] 126 38', '...write 64 64',
      '...[libc.so.6] 24 8', '....[libssl.so.3] 16 16',
    ],
  );
});

test('a runtime is one frame between the functions of the program', () => {
  assert.deepEqual(
    folded({ runtimes: true, libraries: true }, [
      'p', 0,
      ['[l] JavaMain @/jdk/lib/libjli.so', 1,
        ['[l] JavaCalls::call @/jdk/lib/server/libjvm.so', 2,
          ['[l] call_stub', 4, ['[l] Interpreter', 8, ['[j] App.main', 16,
            ['[l] read @/lib/libc.so.6', 32]]]]]],
    ]),
    [
      'p 63 0', '.[Java runtime] 63 3', '..[runtime stubs] 60 12', '...App.main 48 16',
      '....[libc.so.6] 32 32',
    ],
  );
  assert.deepEqual(
    folded({ runtimes: true }, [
      'p', 0,
      ['runtime.main', 1,
        ['main.main', 2,
          ['runtime.mallocgc', 4, ['runtime/internal/sys.Add', 8]], ['runtime/debug.Stack', 16]]],
    ]),
    [
      'p 31 0', '.[Go runtime] 31 1', '..main.main 30 2', '...runtime/debug.Stack 16 16',
      '...[Go runtime] 12 12',
    ],
  );
});

test('programs are known by the names of their files', () => {
  const names = (module: string) =>
    folded({ runtimes: true }, ['p', 0, [`f @${module}`, 1]])[1].split(' 1')[0];

  for (const [module, name] of [
    ['/usr/lib/libpython3.11.so.1.0', '.[Python runtime]'],
    ['/usr/bin/python3.12', '.[Python runtime]'],
    ['/usr/bin/luajit-2.1', '.[Lua runtime]'],
    ['/usr/local/bin/node', '.[Node.js runtime]'],
    ['/usr/share/dotnet/libcoreclr.so', '.[.NET runtime]'],
    ['/usr/lib/libruby-3.1.so.3.1', '.[Ruby runtime]'],
    ['/usr/sbin/php-fpm8.2', '.[PHP runtime]'],
    ['/usr/lib/erlang/beam.smp', '.[Erlang runtime]'],
    ['/usr/bin/nodetool', '.f'],
    ['/usr/bin/pythonic', '.f'],
    ['/srv/python/app', '.f'],
  ])
    assert.equal(names(module), name, module);
});

test('a hidden function leaves: what it did and called moves up to its caller', () => {
  const c = profileOf(['p', 1, ['f', 2, ['g', 4, ['h', 8]], ['h', 16]], ['g', 32], ['[k] g', 64]]);

  assert.deepEqual(outlineWithValues(transform(c, { ...nothing, hidden: [app('g')] })), [
    'p 127 33', '.g 64 64', '.f 30 6', '..h 24 24',
  ]);
  assert.deepEqual(
    outlineWithValues(
      transform(c, { ...nothing, hidden: [app('f'), { name: 'p', kind: 'root' }] }),
    ),
    ['p 127 3', '.g 64 64', '.g 44 36', '..h 8 8', '.h 16 16'],
  );
});

test('what is between two frames of one library is hidden: they are one', () => {
  const c = profileOf(['p', 0, ['[l] a @/l.so', 1, ['f', 2, ['[l] b @/l.so', 4]]]]);
  const fold = { ...nothing.fold, libraries: true };

  assert.deepEqual(outlineWithValues(transform(c, { fold, hidden: [app('f')], focus: [] })), [
    'p 7 0', '.[l.so] 7 7',
  ]);
});

test('a focus is a subtree below its callers, and its value is the whole', () => {
  const c = profileOf(['p', 1, ['f', 2, ['g', 4, ['h', 8], ['i', 16]], ['h', 32]], ['g', 64]]);
  const focused = transform(c, { ...nothing, focus: ['f', 'g'] });

  assert.deepEqual(outlineWithValues(focused), [
    'p 28 0', '.f 28 0', '..g 28 4', '...i 16 16', '...h 8 8',
  ]);
  assert.deepEqual([...focused.parent], [-1, 0, 1, 2, 2]);
  assert.deepEqual([...focused.depth], [0, 1, 2, 3, 3]);
  assert.deepEqual([...focused.end], [5, 5, 5, 4, 5]);
  assert.equal(transform(c, { ...nothing, focus: ['f', 'lost'] }), c);
});

test('a path tells frames of the same name apart', () => {
  const c = profileOf([
    'p', 0, ['f @/a.so', 9], ['f @/b.so', 4, ['g', 1]], ['[k] f', 2], ['f\nx', 1],
  ]);

  for (let node = 1; node < c.n; node++) {
    const focused = transform(c, { ...nothing, focus: pathTo(c, node) });
    assert.equal(focused.total[0], c.total[node], pathTo(c, node).join());
    assert.equal(nodeAt(c, pathTo(c, node)), node);
  }
});

test('samples, and both values of a difference, are carried along', () => {
  const c = differenceOf(
    ['p', 1, ['f', 1, ['f', 2, ['g', 4]]], ['g', 8]],
    ['p', 0, ['f', 3, ['f', 5, ['g', 7]]], ['g', 9]],
  );
  const { before, ...after } = transform(c, {
    ...nothing, fold: { ...nothing.fold, recursion: true }, focus: ['f'],
  });

  assert.deepEqual(outlineWithValues(after as Columns), ['p 15 0', '.f 15 8', '..g 7 7']);
  assert.deepEqual([...before!.total], [7, 7, 4]);
  assert.deepEqual([...before!.self], [0, 3, 4]);
  assert.deepEqual([...after.samples.total], [15, 15, 7]);
  assert.deepEqual([...before!.samples.total], [7, 7, 4]);
});

test('a node is inlined if all of its frames are', () => {
  const c = profileOf(['p', 0, ['[t] a', 0, ['f', 1]], ['[t] b', 0, ['f', 1], ['g', 1]]]);
  const inlined = Uint8Array.from(c.fn, (f, i) => Number(c.functions.names[f] === 'g' || i === 2));
  const fold: Chosen['fold'] = { ...nothing.fold, threads: 'none' };
  const none = transform({ ...c, inlined }, { ...nothing, fold });

  assert.deepEqual(outline(none), ['p', '.f', '.g']);
  assert.deepEqual([...none.inlined], [0, 0, 1]);
});

test('the total of a large profile stays, whatever is folded and hidden', () => {
  const c = largeProfile(20_000);
  const hidden = c.functions.names.slice(1, 20_000).map(app);
  const all = transform(c, {
    fold: { threads: 'none', recursion: true, libraries: true, runtimes: true }, hidden, focus: [],
  });

  assert.ok(all.n < c.n && all.functions.kinds.some(isFunction));
  assert.equal(all.total[0], c.total[0]);
  assert.equal(all.self.reduce((sum, v) => sum + v, 0), c.total[0]);
});
