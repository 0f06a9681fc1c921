// SPDX-License-Identifier: Apache-2.0
// What a screen reader finds beside the canvas: a line that says each newly selected frame, and a
// table of this frame, its callers and its callees.

import type { Options } from './options';
import type { Scene } from './scene';
import { textOf, wordsOf, type Words } from './words';

const MAX_CALLEES = 100; // that are told

export class Reader {
  readonly element = document.createElement('div');
  private readonly said = document.createElement('p');
  private readonly table = document.createElement('table');

  constructor() {
    this.element.className = 'flame-read';
    this.said.ariaLive = 'polite';
    this.element.append(this.said, this.table);
    this.clear();
  }

  /** Says a frame, and lists it behind its callers, the root first, and before its callees. */
  tell(scene: Scene, node: number, options: Options): void {
    const { columns, layout } = scene;
    const [above, below] = options.callers ? ['callee', 'caller'] : ['caller', 'callee'];
    const path: number[] = [];
    let n = 0;

    this.said.textContent = textOf(scene, { node, rest: 0 }, options);
    this.head(scene.changes ? ['Difference'] : []);
    for (let i = columns.parent[node]; i >= 0; i = columns.parent[i]) path.push(i);
    for (const i of path.reverse()) this.row(above, wordsOf(scene, i, options));
    this.row('selected', wordsOf(scene, node, options));
    layout.child(node, (i) => {
      if (n++ < MAX_CALLEES) this.row(below, wordsOf(scene, i, options));
      return false;
    });
    if (n > MAX_CALLEES) {
      const name = `${(n - MAX_CALLEES).toLocaleString()} smaller ones`;
      this.row(below, { name, value: '', share: '' });
    }
  }

  clear(): void {
    this.said.textContent = '';
    this.head();
  }

  private head(more: string[] = []): void {
    this.table.replaceChildren();
    this.table.createCaption().textContent = 'the selected frame, its callers and its callees';
    const row = this.table.createTHead().insertRow();
    for (const title of ['Role', 'Frame', 'Value', 'Share', ...more]) {
      const cell = document.createElement('th');
      cell.scope = 'col';
      cell.textContent = title;
      row.append(cell);
    }
    this.table.createTBody();
  }

  private row(role: string, { name, value, share, change }: Words): void {
    const row = this.table.tBodies[0].insertRow();
    const cells = [role, name, value, share, ...(change ? [change] : [])];

    for (const text of cells) row.insertCell().textContent = text;
  }
}
