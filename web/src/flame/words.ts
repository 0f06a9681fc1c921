// SPDX-License-Identifier: Apache-2.0
// Frames in words.
import { inert, isolated } from '../profile/names';
import { percent } from '../profile/values';
import { kinds } from './colours';
import type { Options } from './options';
import type { Frame, Scene } from './scene';

type How = Pick<Options, 'value' | 'about' | 'whole' | 'short' | 'callers'>;

/** A frame in a table. */
export interface Words {
  name: string;
  value: string;
  share: string;
  change?: string; // "": the profile is no difference
}

export function wordsOf(scene: Scene, node: number, how: How): Words {
  const total = scene.columns.total[node];

  return {
    name: scene.label({ node, rest: 0 }, how.short),
    value: how.value(total),
    share: share(scene, total, how),
    change: scene.changeText(node),
  };
}

/** "f (program, /usr/bin/web) — 60 (60.0 %, 75.0 % of its caller), itself 20" */
export function textOf(scene: Scene, { node, rest }: Frame, how: How): string {
  const { self, total } = scene.columns;
  const change = scene.changeText(node);
  const shares = [share(scene, total[node], how), ...shareOfParent(scene, node, how)].join(', ');
  const more = aboutOf(scene, node, how);
  const itself = how.callers ? '' : `, itself ${how.value(self[node])}`;

  if (rest) return restText(scene, node, rest, how);
  return (
    `${fullName(scene, node)} — ${how.value(total[node])} (${shares})${itself}` +
    (change && `; ${change}`) +
    (more && `. ${more}`)
  );
}

function aboutOf({ columns: { fn, functions } }: Scene, node: number, how: How): string {
  return how.about(functions.names[fn[node]], functions.kinds[fn[node]]);
}

const share = ({ columns }: Scene, value: number, { whole }: How): string =>
  percent(value, whole ?? columns.total[0]);

/** Of a frame below the root, this is its share of all, unless the root is not all. */
function shareOfParent({ columns }: Scene, node: number, { whole, callers }: How): string[] {
  const { parent, total } = columns;
  const of = parent[node];

  if (of < 0 || (of === 0 && whole === null)) return [];
  return [`${percent(total[node], total[of])} of its ${callers ? 'callee' : 'caller'}`];
}

function restText(scene: Scene, node: number, rest: number, how: How): string {
  const { layout, camera, changes } = scene;
  const isZoomed = layout.viewOfRest(node).from === camera.target.from;
  const sum = layout.rest(node);
  const value = changes ? '' : ` — ${how.value(sum)} (${share(scene, sum, how)})`;

  return (
    `${rest.toLocaleString()} ${rest === 1 ? 'frame' : 'frames'} too narrow to draw` +
    `${value}${isZoomed ? '' : '; a click zooms in'}`
  );
}

/** "f (inlined, program, /usr/bin/web, work.cc:7)" */
function fullName({ columns }: Scene, node: number): string {
  const { fn, inlined, functions } = columns;
  const f = fn[node];
  const about = [
    inlined[node] ? 'inlined' : '',
    kinds[functions.kinds[f]]?.label ?? '',
    inert(functions.modules[f]),
    inert(functions.source(f)),
  ].filter(Boolean);

  return `${isolated(inert(functions.names[f]))}${about.length ? ` (${about.join(', ')})` : ''}`;
}
