// SPDX-License-Identifier: Apache-2.0
// Tests of the page: the choice of the event.
import assert from 'node:assert/strict';
import { choicesAre, open } from '../page_testing.mjs';

export const tests = {
  async 'the event that is shown is the one that is chosen, on-cpu at first'(page, origin) {
    await choicesAre(page, { profile_event_type: ['off-cpu', 'on-cpu'] });
    await open(page, `${origin}/#`);
    await page.waitForFunction(
      () => document.querySelectorAll('#choice-profile_event_type option').length === 2,
    );
    assert.equal(await page.getByLabel('Event').inputValue(), 'on-cpu');
    assert.equal(await page.inputValue('#choice-profile_event_type'), 'on-cpu');
    await choicesAre(page, { profile_event_type: ['off-cpu'] });
    await page.reload();
    await page.waitForFunction(
      () => document.querySelectorAll('#choice-profile_event_type option').length === 2,
    );
    assert.equal(
      await page.textContent('#choice-profile_event_type option:checked'),
      'on-cpu (no data)',
    );
  },
};
