// SPDX-License-Identifier: Apache-2.0
// Asks the hub what a state needs: what it says about itself first, then each question whose form
// is new.
import { hasToken, SignInError } from '../api/hub';
import type { Hub } from '../api/queries';
import type {
  GroupsReply, Info, ProfileQuestion, Reason, Reply, Series, SeriesQuestion, Values,
} from '../api/types';
import type { Columns } from '../profile/columns';
import { leavesIdleOut } from '../profile/idle';
import { fromTree } from '../profile/tree';
import type { State } from '../state/state';
import type { Operator } from '../state/filter';
import { labelled, type Tag } from '../state/tags';
import { Clock } from '../state/times';
import { errorText } from '../words/error';
import { Question } from './question';
import {
  isBreakdown, isRequest, offeredQuestion, questionsOf, type BreakdownQuestion,
  type RequestQuestion,
} from './questions';
import type { Summaries } from './request_words';

/** A profile, and what it is the answer to. */
export interface Answer {
  reply: Reply;
  columns: Columns | null; // null: nothing was found
  state: State;
  now: number; // when it was asked, by the hub's clock
}

/** What was seen of one request. */
export interface RequestAnswer {
  cpu: Columns | null; // null: nothing was found
  waits: Columns | null;
  summaries: Summaries;
}

/** Which values of a tag have the selection, or a function of it. */
export interface BreakdownAnswer {
  question: BreakdownQuestion;
  now: GroupsReply;
  before: GroupsReply | null; // of the other selection of a comparison
}

/** The newest answer; null: there is none yet. `isStale`: it is that to an earlier question. */
export interface Part<T> {
  answer: T | null;
  isStale: boolean;
}

/** All that the hub has answered so far. */
export interface Answers {
  info: Info | null;
  tags: Tag[]; // all that the hub stores
  now: number; // when the newest questions were asked, by the hub's clock
  profile: Part<Answer> & { preview: Answer | null };
  request: Part<RequestAnswer>;
  breakdown: Part<BreakdownAnswer>;
  series: Part<Series>;
  choices: Part<Record<string, Values>>;
  cpuSeconds: number | null; // that the selection has used; null: not known, or not asked for
  why: Part<Reason[]> & { error: string }; // the profile is empty; error: the hub cannot say it
  isBusy: boolean;
  signIn: string | null; // why the user has to sign in; null: no need
  error: string; // why there is no answer; ''
}

export class Asker {
  private readonly clock = new Clock();
  private readonly info: Question<'', Info>;
  private readonly profile;
  private readonly request;
  private readonly breakdown;
  private readonly series;
  private readonly choices;
  private readonly cpu;
  private readonly why;
  private tags: Tag[] = []; // all that the hub stores
  private isSignedIn = false; // without a token of the page's own
  private state: State | null = null; // the newest
  private now = this.clock.now(); // of the newest questions

  constructor(
    private readonly hub: Hub,
    onChange: () => void,
  ) {
    this.info = new Question((_, signal) => this.introduce(signal), onChange);
    this.profile = new Question(this.profileOf.bind(this), onChange);
    this.request = new Question(this.requestOf.bind(this), onChange);
    this.breakdown = new Question(this.breakdownOf.bind(this), onChange);
    this.series = new Question(hub.series, onChange);
    this.choices = new Question(hub.choices, onChange);
    this.cpu = new Question(this.cpuSecondsOf.bind(this), onChange);
    this.why = new Question(hub.why, onChange);
  }

  private all() {
    const { info, profile, request, breakdown, series, choices, cpu, why } = this;

    return [info, profile, request, breakdown, series, choices, cpu, why];
  }

  /** Those whose answers the newest state needs. */
  private needed() {
    const { state } = this;

    return this.all().filter((q) => {
      if (q === this.request) return state && isRequest(state);
      if (q === this.breakdown) return state && isBreakdown(state);
      return q !== this.why;
    });
  }

  /** Asks what is new in a state; `again`: all of it. Ends when all have their answers. */
  async ask(state: State, again = false): Promise<void> {
    this.state = state;
    if (again || !this.info.answer || this.info.error) await this.info.put('', true);
    if (!this.info.answer || this.lacksToken() || this.state !== state) return;
    const { profile, request, breakdown, series, choices, cpu } = this.questions(state, again);

    await Promise.all([
      this.profile.put(profile, again).then(() => this.askWhy(profile, again)),
      request && this.request.put(request, again),
      breakdown && this.breakdown.put(breakdown, again),
      this.series.put(series, again),
      this.choices.put(choices, again),
      this.cpu.put(cpu, again),
    ]);
  }

  /** Asks why a profile is empty, unless something else is asked by now. */
  private async askWhy(profile: ProfileQuestion, again: boolean): Promise<void> {
    const { profile_event_type, app_service, tag_filter, time_start, time_end } = profile;
    const question = { profile_event_type, app_service, tag_filter, time_start, time_end };
    const isNewest = !this.profile.isNew(profile) && !this.profile.isStale;

    if (!isNewest || this.profile.answer!.columns) return;
    await this.why.put(question, again);
  }

  /** The values of a tag that the other conditions of a state leave, for what a user types. */
  offer(
    state: State, tag: string, op: Operator, typed: string, signal: AbortSignal,
  ): Promise<Values> {
    return this.hub.values(offeredQuestion(state, this.tags, this.now, tag, op, typed), signal);
  }

  /** What there is to show. */
  answers(): Answers {
    const errors = this.needed().flatMap((q) => q.error ?? []);
    const error = errors.find((e) => !(e instanceof SignInError));
    const part = <T>({ answer, isStale }: Question<never, T>): Part<T> => ({
      answer,
      isStale: isStale || this.info.error !== null || this.lacksToken(),
    });

    return {
      info: this.info.answer,
      tags: this.tags,
      now: this.now,
      profile: { ...part(this.profile), preview: this.profile.preview },
      request: part(this.request),
      breakdown: part(this.breakdown),
      series: part(this.series),
      choices: part(this.choices),
      cpuSeconds: this.cpu.isStale ? null : this.cpu.answer,
      why: { ...part(this.why), error: errorText(this.why.error) },
      isBusy: [...this.needed(), this.why].some((q) => q.isBusy),
      signIn: this.refusal(),
      error: errorText(error),
    };
  }

  /** Aborts all questions. */
  end(): void {
    for (const question of this.all()) question.end();
  }

  /** Why the newest questions were refused; null: they were not, or are under way. */
  private refusal(): string | null {
    if (this.lacksToken()) return '';
    for (const { error, isBusy } of this.needed())
      if (error instanceof SignInError && !isBusy) return error.message;
    return null;
  }

  private lacksToken(): boolean {
    return this.info.answer?.auth_required === true && !hasToken() && !this.isSignedIn;
  }

  /** All questions are of one moment, which is a new one when the profile is asked for. */
  private questions(state: State, again: boolean) {
    const same = questionsOf(state, this.tags, this.now);

    if (!again && !this.profile.isNew(same.profile)) return same;
    this.now = this.clock.now();
    return questionsOf(state, this.tags, this.now);
  }

  private async introduce(signal: AbortSignal): Promise<Info> {
    const info = await this.hub.info(signal);

    this.isSignedIn =
      info.auth_required && !hasToken() && (await this.hub.isSignedIn(signal));
    if (info.time) this.clock.set(info.time);
    this.tags = labelled((info.tags ?? []).filter((t) => t.stored && !t.same_as));
    return info;
  }

  private async profileOf(
    question: Parameters<Hub['profile']>[0],
    signal: AbortSignal,
    onPreview: (preview: Answer) => void,
  ): Promise<Answer> {
    const { now } = this;
    const state = this.state!;
    const answerOf = (reply: Reply): Answer =>
      ({ reply, columns: fromTree(reply.result), state, now });

    return answerOf(
      await this.hub.profile(
        question,
        signal,
        this.wantsPreview(state) ? (reply) => onPreview(answerOf(reply)) : undefined,
      ),
    );
  }

  /** What is shown of the same choices, or of some stacks, may be more than a preview has. */
  private wantsPreview(state: State): boolean {
    const choices = (of: State): string =>
      JSON.stringify(questionsOf(of, this.tags, 0).profile);
    const shown = this.profile.answer?.state;
    const isAgain = shown && choices(shown) === choices(state);

    return !isAgain && !leavesIdleOut(state) && isAll(state.zoom, state.focus, state.without);
  }

  private async requestOf(
    question: RequestQuestion,
    signal: AbortSignal,
  ): Promise<RequestAnswer> {
    const [cpu, waits] = await Promise.all([
      this.hub.profile(question.cpu, signal),
      this.hub.profile(question.waits, signal),
    ]);

    return {
      cpu: fromTree(cpu.result),
      waits: fromTree(waits.result),
      summaries: { cpu: cpu.summary, waits: waits.summary },
    };
  }

  private async breakdownOf(
    question: BreakdownQuestion,
    signal: AbortSignal,
  ): Promise<BreakdownAnswer> {
    const [now, before] = await Promise.all([
      this.hub.groups(question.now, signal),
      question.before && this.hub.groups(question.before, signal),
    ]);

    return { question, now, before };
  }

  private async cpuSecondsOf(
    question: SeriesQuestion | null,
    signal: AbortSignal,
  ): Promise<number | null> {
    if (!question) return null;
    const { groups } = await this.hub.series(question, signal);

    return groups.flatMap((g) => g.values).reduce((sum, us) => sum + us, 0) / 1e6;
  }
}

const isAll = (...chosen: unknown[][]): boolean => chosen.every((of) => of.length === 0);
