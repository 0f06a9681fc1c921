// SPDX-License-Identifier: Apache-2.0
// Waits of threads that have nothing to do, in the event loops and worker pools of known programs,
// libraries and runtimes. What a worker waits for while it works is no idle wait. docs/page.md has
// the list.
import { isFunction, type Columns, type Functions } from './columns';
import { keyOf } from './folds';

/** Whether an event has waits. */
export const hasIdle = (event: string): boolean => event === 'off-cpu';

/** Whether idle waits of an event are left out. */
export const leavesIdleOut = (of: { withoutIdle: boolean; event: string }): boolean =>
  of.withoutIdle && hasIdle(of.event);

/** Functions below which threads wait for work. */
interface Place {
  kinds: readonly string[];
  names: readonly string[];
  /** Whether such a function below one of them is work. */
  isWork: (kind: string, name: string) => boolean;
}

/** Functions of the C library and of the JVM that wait, and those that they consist of. */
const waiting = new RegExp(
  '^_*(p?poll|epoll_p?wait2?|p?select(64)?|pthread_cond_((timed)?wait|wait_common)' +
    '|futex_abstimed_wait_(common(64)?|cancelable(64)?)' +
    '|Monitor::wait(_without_safepoint_check)?|os::Platform(Monitor|Event)::(wait|park))(?!\\w)',
);
const native = ['app', 'library'];
const doesMore: Place['isWork'] = (kind, name) =>
  kind !== 'kernel' && kind !== 'unnamed' && !waiting.test(name);

const places: Place[] = [
  {
    kinds: ['jvm'],
    names: [
      'java.util.concurrent.ThreadPoolExecutor.getTask',
      'java.util.concurrent.ForkJoinPool.awaitWork', 'java.util.TimerThread.mainLoop',
      'java.lang.ref.ReferenceQueue.remove',
      'java.lang.ref.Reference.waitForReferencePendingList', 'sun.nio.ch.SelectorImpl.select',
    ],
    isWork: () => false,
  },
  {
    kinds: native, // threads of the JVM
    names: [
      'CompileQueue::get', 'VMThread::wait_for_operation', 'WatcherThread::sleep',
      'G1ServiceThread::sleep_before_next_cycle', 'ServiceThread::service_thread_entry',
      'MonitorDeflationThread::monitor_deflation_thread_entry',
    ],
    isWork: doesMore,
  },
  {
    kinds: native, // Go's scheduler, when no goroutine can run
    names: ['runtime.findRunnable', 'runtime.findrunnable', 'runtime.stopm', 'runtime.sysmon'],
    isWork: () => false,
  },
  {
    kinds: ['python'],
    names: [
      'concurrent.futures.thread._worker', 'selectors.EpollSelector.select',
      'selectors._PollLikeSelector.select', 'selectors.SelectSelector.select',
    ],
    isWork: (kind) => kind === 'python',
  },
  {
    kinds: native, // the thread of libpodflame-cuda.so
    names: ['podflame_cuda_nap'],
    isWork: () => false,
  },
  {
    kinds: native, // the loops of libuv (Node.js), libevent, libev, Redis and nginx
    names: [
      'uv__io_poll', 'epoll_dispatch', 'epoll_poll', 'aeMain', 'aeProcessEvents', 'aeApiPoll',
      'bioProcessBackgroundJobs', 'ngx_process_events_and_timers', 'ngx_epoll_process_events',
      'ngx_poll_process_events', 'ngx_select_process_events',
    ],
    isWork: doesMore,
  },
];

/** Causes that say that a thread had work, or could run. */
const busy = ['wait: runqueue', 'wait: disk', 'wait: gpu'];

/** Of each node 1, if it is the cause of an idle wait. */
export function idleWaits({ n, fn, parent, functions }: Columns): Uint8Array {
  const { kinds, names } = functions;
  const placeOf = placesOf(functions);
  const inside = new Int8Array(n).fill(-1); // of each node: the place that it is in
  const idle = new Uint8Array(n);

  for (let i = 1; i < n; i++) {
    const kind = kinds[fn[i]];
    const place = inside[parent[i]];
    const isLeft = place >= 0 && isFunction(kind) && places[place].isWork(kind, names[fn[i]]);

    if (kind.startsWith('wait: ')) idle[i] = Number(place >= 0 && !busy.includes(kind));
    else if (placeOf[fn[i]] >= 0) inside[i] = placeOf[fn[i]];
    else inside[i] = isLeft ? -1 : place;
  }
  return idle;
}

/** Of each function: the place that it is; -1: none. */
function placesOf({ names, kinds }: Functions): Int8Array {
  const known = new Map<string, number>();

  places.forEach((place, at) => {
    for (const kind of place.kinds)
      for (const name of place.names) known.set(keyOf({ name, kind }), at);
  });
  return Int8Array.from(names, (name, fn) => {
    const base = native.includes(kinds[fn]) ? name.split('(', 1)[0] : name;

    return known.get(keyOf({ name: base, kind: kinds[fn] })) ?? -1;
  });
}
