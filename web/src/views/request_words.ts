// SPDX-License-Identifier: Apache-2.0
// What the page says about the time of one request: how sure it is, and what may be missing.
import type { Summary } from '../api/types';
import type { Request, Spent } from '../profile/request';
import { formatValue, percent } from '../profile/values';

/** Summaries of both answers. */
export interface Summaries {
  cpu?: Summary;
  waits?: Summary;
}

const time = (us: number): string => formatValue(us, 'microseconds');

export const spanText = (id: string): string => (id ? `span ${id}` : 'span not known');

/** How exact a time is: "± 17.3 ms", or "measured". */
export const exactText = ({ kind, error }: Spent): string =>
  kind === 'cpu' ? `± ${time(error)}` : 'measured';

/** How much of the request was seen. */
export function seenText({ seen, missing }: Request, durationUs: number | null): string {
  if (durationUs === null || missing === null)
    return (
      `${time(seen)} of the request were seen. The page does not know how long the request took, ` +
      'so it cannot show what is missing.'
    );
  if (missing > 0)
    return (
      `${time(seen)} of ${time(durationUs)} were seen. ${time(missing)} ` +
      `(${percent(missing, durationUs)}) are missing.`
    );
  if (seen > durationUs)
    return (
      `What was seen adds up to ${time(seen)}, and the request took ${time(durationUs)}: several ` +
      'threads or pods worked at the same time, and each of them counts.'
    );
  return `All of ${time(durationUs)} were seen.`;
}

/** How far the time on a CPU and the waits can be trusted. */
export function trustTexts(request: Request, { cpu, waits }: Summaries): string[] {
  return [cpuText(request), waitsText(request, waits), lossText(cpu, waits)].filter(Boolean);
}

function cpuText({ ways, missing }: Request): string {
  const cpu = ways.find(({ kind }) => kind === 'cpu');
  const within = missing && cpu && missing <= cpu.error;

  if (!cpu) return 'No sample found the request on a CPU. It may have used CPU time between two.';
  return (
    `The time on a CPU is an estimate from ${counted(cpu.samples, 'sample')}, each of which ` +
    `stands for ${time(cpu.value / cpu.samples)}: its error is about ± ${time(cpu.error)}.` +
    (within ? ' What is missing is not more than that.' : '')
  );
}

function waitsText({ ways }: Request, waits?: Summary): string {
  const isSeen = ways.some(({ kind }) => kind !== 'cpu');

  if (waits && !waits.profiles)
    return 'No waits of any process are stored for this time: does the target ask for off-cpu?';
  if (!isSeen) return 'No wait of the request was seen.';
  if (!waits?.estimated) return 'The waits were measured.';
  return (
    `Short waits are estimates, too: of some of these processes, only ` +
    `${percent(waits.estimated.share, 1)} of the waits were measured.`
  );
}

function lossText(...summaries: (Summary | undefined)[]): string {
  return summaries.some((s) => s?.losses?.length)
    ? 'Some samples or waits of this time were lost.'
    : '';
}

const counted = (n: number, what: string): string =>
  `${n.toLocaleString()} ${what}${n === 1 ? '' : 's'}`;

/** Why time of a request may be missing. */
export function reasons({ waits }: Summaries): string[] {
  const throttled = waits?.throttled_us;

  return [
    'CPU time between two samples: the sum is right on average, but not for a single request.',
    'Waits that are shorter than the target\u2019s minBlock (50 µs by default).',
    'A thread that could run, but lost its CPU to another thread. It does not wait, so only its ' +
      'missing samples show it.' +
      (throttled
        ? ` CPU limits held back the containers of this selection for ${time(throttled)}.`
        : ''),
    'What ran before the program published the span, or on threads that publish none.',
    'Goroutines, virtual threads and other tasks that wait: podflame sees the waits of threads.',
    'Processes that podflame does not profile, and the network between processes.',
    'If several threads worked at the same time, each counts, so more is missing than is drawn.',
  ];
}

/** Why nothing of a request was seen. */
export const emptyReasons: string[] = [
  'It was short. At 99 samples a second, the default, four of five requests that use 2 ms of CPU ' +
    'have no sample. Waits that are shorter than the target\u2019s minBlock (50 µs by default) ' +
    'are left out.',
  'It was not in the time that is chosen. Its samples are stored with the window in which they ' +
    'were taken, some seconds later.',
  'Its processes publish no trace context, or their target does not ask for it (traceContext: ' +
    'true; in podflame local trace_context: true).',
  'No target selects its processes, or the hub has deleted its samples to make room for new ones.',
];
