// SPDX-License-Identifier: Apache-2.0
// Tests of the page: choices.
import assert from 'node:assert/strict';
import { until } from '../chromium.mjs';
import { choicesAre, open, replyOf } from '../page_testing.mjs';

export const tests = {
  async 'the event that is shown is the one that is chosen, on-cpu at first'(page, origin) {
    await choicesAre(page, { profile_event_type: ['off-cpu', 'on-cpu'] });
    await open(page, `${origin}/#`);
    await page.waitForFunction(
      () => document.querySelectorAll('#choice-profile_event_type option').length === 2,
    );
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
  async 'a choice beyond those that are offered is not called without data'(page, origin) {
    const pods = Array.from({ length: 500 }, (_, i) => `pod-${i}`);
    await choicesAre(page, { pod: pods }, true);
    await open(page, `${origin}/#pod=rare`);
    const texts = () => page.$$eval('#choice-pod option', (all) => all.map((o) => o.text));
    await until(async () => (await texts()).length === 503);
    assert.deepEqual((await texts()).slice(0, 3), ['all', 'rare', 'pod-0']);
    assert.equal((await texts()).at(-1), '… 500 of more: choose a workload or a namespace first');
    await choicesAre(page, { pod: pods });
    await page.click('#reload');
    await until(async () => (await texts()).length === 502);
    assert.equal((await texts())[1], 'rare (no data)');
    assert.equal((await texts()).at(-1), 'pod-499');
  },
  async 'tags of single events are choices of these events only'(page, origin) {
    const filters = [];
    await choicesAre(page, { gpu_device: ['0', '1'], gpu_stream: ['default'], wait: ['lock'] });
    await page.route('**/v1/profile/tree', (r) => {
      filters.push(r.request().postDataJSON().tag_filter);
      return r.fulfill({ json: replyOf({ f: 1 }, { unit: 'bytes' }) });
    });
    const shown = () => page.$$eval('#choices label', (all) =>
      all.filter((l) => !l.hidden).map((l) => l.firstChild.textContent));
    await open(page, `${origin}/#profile_event_type=hbm-alloc&gpu_stream=default`);
    await until(async () => (await page.$$('#choice-gpu_device option')).length === 3);
    assert.deepEqual(
      (await shown()).slice(-5),
      ['GPU', 'GPU context', 'GPU stream', 'Event', 'Time'],
    );
    assert.equal(await page.inputValue('#choice-gpu_stream'), 'default');
    await page.selectOption('#choice-gpu_device', '1');
    await until(() => filters.at(-1) === "gpu_stream='default' AND gpu_device='1'");
    await open(page, `${origin}/#profile_event_type=off-cpu&gpu_device=1&wait=lock`);
    await until(() => filters.at(-1) === "wait='lock'");
    assert.deepEqual((await shown()).slice(-3), ['Waits for', 'Event', 'Time']);
  },
  async 'rdma is the send queue until an operation is chosen'(page, origin) {
    const filters = [];
    await choicesAre(page, { rdma_operation: ['send', 'receive'] });
    await page.route('**/v1/profile/tree', (r) => {
      filters.push(r.request().postDataJSON().tag_filter);
      return r.fulfill({ json: replyOf({ f: 1 }, { unit: 'bytes' }) });
    });
    const texts = () => page.$$eval('#choice-rdma_operation option', (all) =>
      all.map((o) => o.text));
    await open(page, `${origin}/#profile_event_type=rdma`);
    await until(async () => (await texts()).length === 3);
    assert.deepEqual(await texts(), ['send queue', 'send', 'receive']);
    assert.equal(filters.at(-1), '');
    await page.selectOption('#choice-rdma_operation', 'receive');
    await until(() => filters.at(-1) === "rdma_operation='receive'");
  },
};
