// SPDX-License-Identifier: Apache-2.0
// A picture as SVG that needs no other file and no script. Its frames have their words as titles,
// which browsers show when the pointer is on a frame.
import { BASELINE, FONT, PADDING, type Picture, type PictureFrame } from './picture';

const escapes: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

/** XML 1.0 has no form for control characters, lone surrogates, U+FFFE and U+FFFF. */
const escaped = (text: string): string =>
  text
    .replace(/[\p{Cc}\p{Cs}\ufffe\uffff]/gu, '\ufffd')
    .replace(/[&<>"]/g, (c) => escapes[c]);

const round = (px: number): number => Math.round(px * 100) / 100;

const HATCH = `<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse"
patternTransform="rotate(45)"><rect width="1" height="7" fill-opacity="0.22"/></pattern>
`;

/** The gap to the next frame and the next row is as on the page. */
function frameSvg(frame: PictureFrame): string {
  const { x, y, width, height, colour, textColour, label, title } = frame;
  const w = round(width > 3 ? width - 1 : width);
  const place = `x="${round(x)}" y="${round(y)}" width="${w}" height="${round(height - 1)}"`;
  const hatch = frame.hatched ? `<rect ${place} fill="url(#hatch)"/>` : '';
  const at = `x="${round(x + PADDING)}" y="${round(y + height * BASELINE)}"`;
  const text = label ? `<text ${at} fill="${textColour}">${escaped(label)}</text>` : '';

  return (
    `<g><title>${escaped(title)}</title><rect ${place} fill="${colour}"/>${hatch}${text}</g>\n`
  );
}

export function svgOf({ heading, width, height, frames }: Picture): string {
  const size = `width="${round(width)}" height="${round(height)}"`;

  return (
    `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="0 0 ${round(width)} ${round(height)}" ` +
    `font-family="${FONT.family}" font-size="${FONT.size}">\n` +
    `<title>${escaped(heading)}</title>\n${HATCH}<rect ${size} fill="#fff"/>\n` +
    `<text x="${PADDING}" y="18">${escaped(heading)}</text>\n` +
    `${frames.map(frameSvg).join('')}</svg>\n`
  );
}
