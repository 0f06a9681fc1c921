// SPDX-License-Identifier: Apache-2.0
// What a screen reader finds beside the canvas: a line that says each newly selected frame, and a
// table of this frame, its callers and its callees.

/** A frame in words. */
export interface Words {
  name: string;
  value: string;
  share: string;
}

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

  /**
   * Says a frame, and lists it below its callers, the root first, and above its greatest callees.
   * It has so many more callees.
   */
  show(said: string, callers: Words[], frame: Words, callees: Words[], more: number): void {
    this.said.textContent = said;
    this.head();
    callers.forEach((w) => this.row('caller', w));
    this.row('selected', frame);
    callees.forEach((w) => this.row('callee', w));
    if (more)
      this.row('callee', { name: `${more.toLocaleString()} smaller ones`, value: '', share: '' });
  }

  clear(): void {
    this.said.textContent = '';
    this.head();
  }

  private head(): void {
    this.table.replaceChildren();
    this.table.createCaption().textContent = 'the selected frame, its callers and its callees';
    const row = this.table.createTHead().insertRow();
    for (const title of ['Role', 'Frame', 'Value', 'Share']) {
      const cell = document.createElement('th');
      cell.scope = 'col';
      cell.textContent = title;
      row.append(cell);
    }
    this.table.createTBody();
  }

  private row(role: string, { name, value, share }: Words): void {
    const row = this.table.tBodies[0].insertRow();

    for (const text of [role, name, value, share]) row.insertCell().textContent = text;
  }
}
