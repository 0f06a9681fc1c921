// SPDX-License-Identifier: Apache-2.0
// The time of a request in numbers: of each span how it spent its time, and what is missing.
import { colour, css } from '../flame/colours';
import type { Request, Span, Spent } from '../profile/request';
import { formatValue, percent } from '../profile/values';
import { kindSentence } from '../words/kinds';
import { request as sentences } from '../words/numbers';
import { Explained } from './explained';
import { exactText, spanText } from './request_words';

const MAX_SPANS = 50;

interface Props {
  request: Request;
  whole: number; // of which shares are
}

export function RequestTable({ request: { spans, ways, seen, missing }, whole }: Props) {
  return (
    <table id="request-table">
      <thead>
        <tr>
          <th>How time was spent</th>
          <th>Time</th>
          <th>
            <Explained text={sentences.share}>Share</Explained>
          </th>
          <th>
            <Explained text={sentences.samples}>Samples</Explained>
          </th>
          <th>
            <Explained text={sentences.error}>Error</Explained>
          </th>
        </tr>
      </thead>
      {spans.length > 1 && <Part title="all spans" value={seen} ways={ways} whole={whole} />}
      {spans.slice(0, MAX_SPANS).map((span) => (
        <Part
          key={span.id}
          title={spanText(span.id)}
          value={span.value}
          ways={span.ways}
          whole={whole}
        />
      ))}
      {spans.length > MAX_SPANS && (
        <Part {...sumOf(spans.slice(MAX_SPANS))} ways={[]} whole={whole} />
      )}
      {missing ? <Part title="missing" value={missing} ways={[]} whole={whole} /> : null}
    </table>
  );
}

const sumOf = (spans: Span[]): { title: string; value: number } => ({
  title: `${spans.length.toLocaleString()} smaller spans`,
  value: spans.reduce((sum, { value }) => sum + value, 0),
});

interface PartProps {
  title: string;
  value: number;
  ways: Spent[];
  whole: number;
}

const Part = ({ title, value, ways, whole }: PartProps) => (
  <tbody>
    <tr>
      <th scope="rowgroup">{title}</th>
      <Time value={value} whole={whole} />
      <td />
      <td />
    </tr>
    {ways.map((way) => (
      <tr key={way.kind}>
        <td style={{ borderLeft: `6px solid ${css(colour(way.kind, way.name))}` }}>
          <Explained text={kindSentence(way.kind, way.name)}>{way.name}</Explained>
        </td>
        <Time value={way.value} whole={whole} />
        <td>{way.samples.toLocaleString()}</td>
        <td>{exactText(way)}</td>
      </tr>
    ))}
  </tbody>
);

const Time = ({ value, whole }: { value: number; whole: number }) => (
  <>
    <td>{formatValue(value, 'microseconds')}</td>
    <td>{percent(value, whole)}</td>
  </>
);
