// SPDX-License-Identifier: Apache-2.0
// What a screen reader finds beside the canvas: a line that says each newly selected frame, and a
// table of this frame, its callers and its callees.

/** A frame in words. */
export interface Words {
  name: string;
  value: string;
  share: string;
  change?: string; // "": the profile is no difference
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
    this.head(frame.change ? ['Difference'] : []);
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
