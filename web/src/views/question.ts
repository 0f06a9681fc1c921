// SPDX-License-Identifier: Apache-2.0
// One of the page's questions to the hub, asked again and again. Only its newest form counts: an
// earlier one is aborted, and its answer changes nothing.

type Ask<Q, A> = (
  question: Q,
  signal: AbortSignal,
  onPreview: (preview: A) => void,
) => Promise<A>;

export class Question<Q, A> {
  /** The newest answer, which may be to an earlier form. */
  answer: A | null = null;
  /** Of the answer to the newest form, until that has come. */
  preview: A | null = null;
  /** Why the newest form has no answer. */
  error: unknown = null;
  private asked = '';
  private answered = '';
  private turn: AbortController | null = null;

  constructor(
    private readonly ask: Ask<Q, A>,
    private readonly onChange: () => void,
  ) {}

  get isBusy(): boolean {
    return this.turn !== null;
  }

  /** Whether the answer is not that of the newest form. */
  get isStale(): boolean {
    return this.error !== null || this.answered !== this.asked;
  }

  isNew(question: Q): boolean {
    return JSON.stringify(question) !== this.asked;
  }

  /** Asks a form that is new; `again`: also the same one. Ends when it has its answer. */
  async put(question: Q, again: boolean): Promise<void> {
    if (!again && !this.isNew(question)) return;
    const form = JSON.stringify(question);
    const turn = new AbortController();
    let error: unknown = null;
    let answer: A | null = null;

    this.turn?.abort();
    this.turn = turn;
    this.preview = null;
    if (form !== this.asked) this.error = null; // which is about another question
    this.asked = form;
    this.onChange();
    try {
      answer = await this.ask(question, turn.signal, (preview) => {
        if (this.turn !== turn) return;
        this.preview = preview;
        this.onChange();
      });
    } catch (e) {
      error = e;
    }
    if (this.turn !== turn) return;
    this.turn = null;
    this.preview = null;
    this.error = error;
    if (error === null) [this.answer, this.answered] = [answer, form];
    this.onChange();
  }

  /** Nobody waits for the answer any more. */
  end(): void {
    this.turn?.abort();
    this.turn = null;
  }
}
