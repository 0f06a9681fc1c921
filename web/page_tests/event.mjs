// SPDX-License-Identifier: Apache-2.0
// Tests of the page: the choice of the event.
import assert from 'node:assert/strict';
import { until } from '../chromium.mjs';
import { choicesAre, open } from '../page_testing.mjs';

// Waits until these are the first events of the list.
const offeredAre = (page, ...first) =>
  until(async () => {
    const all = await page.$$eval('#choice-profile_event_type option', (o) =>
      o.map((e) => e.textContent));
    return all.slice(0, first.length).join() === first.join();
  });

export const tests = {
  async 'the event that is shown is the one that is chosen, on-cpu at first'(page, origin) {
    await choicesAre(page, { profile_event_type: ['off-cpu', 'on-cpu'] });
    await open(page, `${origin}/#`);
    await offeredAre(page, 'off-cpu', 'on-cpu', 'mem-alloc (no data)');
    assert.equal(await page.getByLabel('Event').inputValue(), 'on-cpu');
    assert.equal(await page.inputValue('#choice-profile_event_type'), 'on-cpu');
    await choicesAre(page, { profile_event_type: ['off-cpu'] });
    await page.reload();
    await offeredAre(page, 'off-cpu', 'on-cpu (no data)', 'mem-alloc (no data)');
    assert.equal(
      await page.textContent('#choice-profile_event_type option:checked'),
      'on-cpu (no data)',
    );
  },
};
