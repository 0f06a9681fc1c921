// SPDX-License-Identifier: Apache-2.0
// A picture as PNG, with two pixels for each pixel of CSS. The browser draws its SVG.
import type { Picture } from './picture';
import { svgOf } from './svg';

const RATIO = 2;
/** Browsers draw at most 16,384 pixels in a column. In pixels of CSS. */
export const MOST_HEIGHT = 16_384 / RATIO;

export async function pngOf(picture: Picture): Promise<Blob> {
  const image = new Image();
  const width = Math.ceil(picture.width * RATIO);
  const height = Math.ceil(picture.height * RATIO);
  const canvas = new OffscreenCanvas(width, height);

  image.src = `data:image/svg+xml,${encodeURIComponent(svgOf(picture))}`;
  await image.decode();
  canvas.getContext('2d')!.drawImage(image, 0, 0, width, height);
  return canvas.convertToBlob({ type: 'image/png' });
}
