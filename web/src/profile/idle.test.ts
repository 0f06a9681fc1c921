// SPDX-License-Identifier: Apache-2.0
// The stacks are those that podflame recorded of idle programs, without frames that say no more.
import assert from 'node:assert/strict';
import test from 'node:test';
import { idleWaits } from './idle';
import { profileOf, type Tree } from './testing';

/** A stack, root first, that waited. */
const stack = (cause: string, ...frames: string[]): Tree =>
  frames.reduceRight<Tree>((callee, name) => [name, 0, callee], [`[wait: ${cause}]`, 1]);

/** Whether the wait of a program with only this stack is idle. */
function isIdle(cause: string, ...frames: string[]): boolean {
  const columns = profileOf(['program', 0, stack(cause, ...frames)]);

  return idleWaits(columns)[columns.n - 1] === 1;
}

const cond = ['[l] pthread_cond_wait', '[l] __pthread_cond_wait_common', '[k] futex_wait'];

const idle: Record<string, [cause: string, ...frames: string[]]> = {
  'a worker of a Java pool': [
    'lock', '[j] java.util.concurrent.ThreadPoolExecutor.runWorker',
    '[j] java.util.concurrent.ThreadPoolExecutor.getTask',
    '[j] java.util.concurrent.LinkedBlockingQueue.take', '[l] Unsafe_Park', ...cond,
  ],
  'a fork-join worker': ['lock', '[j] java.util.concurrent.ForkJoinPool.awaitWork', ...cond],
  'a Java timer': ['lock', '[j] java.util.TimerThread.mainLoop', '[j] java.lang.Object.wait'],
  'a Java selector': ['poll', '[j] sun.nio.ch.SelectorImpl.select', '[l] epoll_wait'],
  "the JVM's compiler": ['lock', '[l] CompileQueue::get()', '[l] Monitor::wait(long)', ...cond],
  "the JVM's service thread": [
    'lock', '[l] ServiceThread::service_thread_entry(JavaThread*, JavaThread*)',
    '[l] Monitor::wait_without_safepoint_check(long)', '[l] os::PlatformMonitor::wait(long)',
    ...cond,
  ],
  "the JVM's own thread": ['lock', '[l] VMThread::wait_for_operation()', ...cond],
  'a Go thread': ['lock', 'runtime.schedule', 'runtime.findRunnable', 'runtime.stopm'],
  "Go's network poller": ['poll', 'runtime.findRunnable', 'runtime.netpoll'],
  "Go's monitor": ['sleep', 'runtime.sysmon', 'runtime.usleep'],
  'a worker of a Python pool': [
    'lock', '[y] threading.Thread.run', '[y] concurrent.futures.thread._worker',
    '[l] _PyEval_EvalFrameDefault', '[l] _queue_SimpleQueue_get', ...cond,
  ],
  'asyncio': ['poll', '[y] selectors.EpollSelector.select', '[l] select_epoll_poll'],
  "the thread of podflame's CUDA library": ['lock', '[l] podflame_cuda_nap', '[l] syscall'],
  'Node.js': ['poll', '[l] uv_run', '[l] uv__io_poll', '[l] epoll_pwait', '[k] do_epoll_wait'],
  Redis: ['poll', 'main', 'aeMain', '[u] /usr/bin/redis', '[l] epoll_wait'],
  "Redis' background thread": ['lock', 'bioProcessBackgroundJobs', ...cond],
  nginx: ['poll', 'ngx_process_events_and_timers', '[u] /usr/sbin/nginx', '[l] epoll_wait'],
  'nginx with symbols': [
    'poll', 'ngx_process_events_and_timers', 'ngx_epoll_process_events', '[l] epoll_wait',
  ],
};
const busy: Record<string, [cause: string, ...frames: string[]]> = {
  'a lock of the program': ['lock', '[j] App.handle', '[l] ObjectMonitor::enter', ...cond],
  'a lock in a task of a Java pool': [
    'lock', '[j] java.util.concurrent.ThreadPoolExecutor.runWorker', '[j] App.run', ...cond,
  ],
  "work of the JVM's service thread": [
    'lock', '[l] ServiceThread::service_thread_entry(JavaThread*, JavaThread*)',
    '[l] OopStorage::delete_empty_blocks()', ...cond,
  ],
  'a task of a Python pool': [
    'lock', '[y] concurrent.futures.thread._worker', '[y] concurrent.futures.thread._WorkItem.run',
    '[y] app.load', ...cond,
  ],
  'a callback of Node.js': ['socket', '[l] uv__io_poll', '[l] uv__read', '[l] read'],
  'a command of Redis': ['lock', 'aeMain', 'readQueryFromClient', ...cond],
  "Redis' write of a file": ['disk', 'bioProcessBackgroundJobs', '[l] fdatasync'],
  "nginx' read of a file": ['socket', 'ngx_process_events_and_timers', 'ngx_http_read', '[l] read'],
  'an answer of PostgreSQL': ['poll', '[l] PQexec', '[l] pqSocketPoll', '[l] poll'],
  "a lock of PostgreSQL's": ['poll', 'ProcSleep', 'WaitLatch', '[l] epoll_wait'],
  'a function whose name begins like one that waits': [
    'lock', 'aeMain', 'poll_upstream', ...cond,
  ],
  'a thread that lacked a CPU': ['runqueue', 'aeMain', '[l] epoll_wait'],
  'a function of the same name': ['lock', '[l] runtime.sysmon_lock', 'App::aeMain', ...cond],
};

for (const [what, wait] of Object.entries(idle))
  test(`idle: ${what}`, () => assert.ok(isIdle(...wait)));
for (const [what, wait] of Object.entries(busy))
  test(`not idle: ${what}`, () => assert.ok(!isIdle(...wait)));

test('only what waits is idle, and each stack counts for itself', () => {
  const columns = profileOf([
    'program', 0,
    ['aeMain', 0, ['[l] epoll_wait', 0, ['[wait: poll]', 5], ['[wait: runqueue]', 1]],
      ['readQueryFromClient', 0, ['[l] pthread_mutex_lock', 0, ['[wait: lock]', 2]]]],
  ]);
  const found = [...idleWaits(columns)].flatMap((is, i) => (is ? columns.self[i] : []));

  assert.deepEqual(found, [5]);
});
