// SPDX-License-Identifier: Apache-2.0
// The filter of a selection, as conditions and as text in the language of tag_filter
// (docs/api.md). The hub gets the text, and parses it in agent/hub/query/filter.c.

export const operators = ['=', '!=', 'IN', 'NOT IN', 'REGEXP', 'NOT REGEXP'] as const;
export type Operator = (typeof operators)[number];

/** IN and NOT IN have one value or more, the others exactly one. */
export interface Condition {
  tag: string;
  op: Operator;
  values: string[];
}

/** Conditions that are all required, or text that says more than conditions can. */
export type Filter = { conditions: Condition[] } | { text: string };

interface Token {
  kind: 'word' | 'tag' | 'value' | 'sign';
  text: string; // without quotes and escapes
}

/** The hub refuses longer text. */
const MAX_TEXT = 65536;

const space = /[ \t\r\n]*/y;
const token = new RegExp(
  [
    /(?<word>[A-Za-z_][\w./:-]*)/,
    /`(?<tag>(?:``|[^`])*)`(?!`)/,
    /(?<number>-?\d+(?:\.\d+)?)/,
    /'(?<single>(?:\\[\s\S]|''|[^'\\])*)'(?!')/,
    /"(?<double>(?:\\[\s\S]|""|[^"\\])*)"(?!")/,
    /(?<sign>!=|<>|<=|>=|[=<>(),])/,
  ].map((r) => r.source).join('|'),
  'y',
);
const plainTag = /^[A-Za-z_][\w./:-]*$/;
const keyword = /^(and|or|not|exist)$/i;

const escapes: Record<string, string> =
  { "'": "'", '"': '"', '\\': '\\', n: '\n', t: '\t', r: '\r' };

/** What the inside of quotes stands for. */
const unquote = (inside: string, quote: string): string =>
  inside
    .replaceAll(/\\([\s\S])|''|""/g, (all, escaped: string | undefined) =>
      escaped === undefined ? (all[0] === quote ? quote : all) : (escapes[escaped] ?? all));

function tokenOf({ word, tag, number, single, double, sign }: Record<string, string>): Token {
  if (word !== undefined) return { kind: 'word', text: word };
  if (tag !== undefined) return { kind: 'tag', text: tag.replaceAll('``', '`') };
  if (number !== undefined) return { kind: 'value', text: number };
  if (single !== undefined) return { kind: 'value', text: unquote(single, "'") };
  if (double !== undefined) return { kind: 'value', text: unquote(double, '"') };
  return { kind: 'sign', text: sign };
}

/** null: the text has something that is no token. */
function tokensOf(text: string): Token[] | null {
  const tokens: Token[] = [];

  for (space.lastIndex = 0; space.test(text) && space.lastIndex < text.length; ) {
    token.lastIndex = space.lastIndex;
    const found = token.exec(text);
    if (!found) return null;
    tokens.push(tokenOf(found.groups!));
    space.lastIndex = token.lastIndex;
  }
  return tokens;
}

/** Reads tokens one after the other. What is not there is null or false, and is not taken. */
class Reader {
  private at = 0;

  constructor(private readonly tokens: Token[]) {}

  isAtEnd(): boolean {
    return this.at === this.tokens.length;
  }

  /** Takes these keywords and signs. */
  take(...texts: string[]): boolean {
    const next = this.tokens.slice(this.at, this.at + texts.length);
    const isThere = texts.every((text, i) => {
      const { kind, text: found } = next[i] ?? { kind: 'value', text: '' };
      return kind === 'sign' ? found === text : kind === 'word' && found.toUpperCase() === text;
    });

    if (isThere) this.at += texts.length;
    return isThere;
  }

  tag(): string | null {
    const { kind, text } = this.tokens[this.at] ?? { kind: 'sign', text: '' };

    if (!text || !(kind === 'tag' || (kind === 'word' && !keyword.test(text)))) return null;
    this.at++;
    return text;
  }

  operator(): Operator | null {
    if (this.take('<>')) return '!=';
    return operators.find((op) => this.take(...op.split(' '))) ?? null;
  }

  value(): string | null {
    return this.tokens[this.at]?.kind === 'value' ? this.tokens[this.at++].text : null;
  }

  list(): string[] | null {
    const values: string[] = [];

    if (!this.take('(')) return null;
    do {
      const value = this.value();
      if (value === null) return null;
      values.push(value);
    } while (this.take(','));
    return this.take(')') ? values : null;
  }
}

function conditionOf(reader: Reader): Condition | null {
  const tag = reader.tag();
  const op = tag && reader.operator();

  if (!tag || !op) return null;
  if (isList(op)) {
    const values = reader.list();
    return values && { tag, op, values };
  }
  const value = reader.value();
  return value === null ? null : { tag, op, values: [value] };
}

function conditionsOf(tokens: Token[]): Condition[] | null {
  const reader = new Reader(tokens);
  const conditions: Condition[] = [];

  if (reader.isAtEnd()) return conditions;
  do {
    const condition = conditionOf(reader);
    if (!condition) return null;
    conditions.push(condition);
  } while (reader.take('AND'));
  return reader.isAtEnd() ? conditions : null;
}

/** Whether the operator takes a list of values. */
export const isList = (op: Operator): boolean => op === 'IN' || op === 'NOT IN';

/** Text that is not conditions joined by AND (or is wrong) stays as it is. */
export function parseFilter(text: string): Filter {
  const tokens = text.length <= MAX_TEXT ? tokensOf(text) : null;
  const conditions = tokens && conditionsOf(tokens);

  return conditions ? { conditions } : { text };
}

/** A value in quotes. A backslash that the hub would keep anyway stays single, as in '\d'. */
const quote = (value: string): string =>
  `'${value.replace(/\\(?![^'"\\ntr\s])|['\n\t\r]/g, (c) =>
    `\\${{ '\n': 'n', '\t': 't', '\r': 'r' }[c] ?? c}`)}'`;

const printTag = (tag: string): string =>
  plainTag.test(tag) && !keyword.test(tag) ? tag : `\`${tag.replaceAll('`', '``')}\``;

function printCondition({ tag, op, values }: Condition): string {
  if (isList(op)) return `${printTag(tag)} ${op} (${values.map(quote).join(', ')})`;
  const spaced = op === '=' || op === '!=' ? op : ` ${op} `;
  return `${printTag(tag)}${spaced}${quote(values[0])}`;
}

/** The text of a condition that the values of a tag have a part, in upper or lower case. */
export const printContains = (tag: string, part: string): string =>
  `${printTag(tag)} LIKE ${quote(`%${part.replace(/[%*_\\]/g, '\\$&')}%`)}`;

export function printFilter(filter: Filter): string {
  return 'text' in filter ? filter.text : filter.conditions.map(printCondition).join(' AND ');
}

/** The text of a filter that requires what another text says, too. */
export function printWith(filter: Filter, more: string): string {
  const own = 'text' in filter && more ? `(${filter.text})` : printFilter(filter);

  return [own, more].filter(Boolean).join(' AND ');
}

/** A filter that requires other conditions, too. */
export const and = (filter: Filter, more: Condition[]): Filter =>
  'text' in filter
    ? { text: printWith(filter, printFilter({ conditions: more })) }
    : { conditions: [...filter.conditions, ...more] };
