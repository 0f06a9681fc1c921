// SPDX-License-Identifier: Apache-2.0
// Tests of the page: filters, as conditions and as text.
import assert from 'node:assert/strict';
import { complaints, expectError, picture, until } from '../chromium.mjs';
import {
  answersAre, chipOf, choicesAre, choose, filterIs, fits, offered, open, replyOf, shows, valuesAre,
} from '../page_testing.mjs';

const conditions = (page) =>
  page.$$eval('.chip.chosen .chip-open', (all) => all.map((e) => e.textContent));
const conditionsAre = (page, ...texts) =>
  until(async () => (await conditions(page)).join() === texts.join());
const text = (page) => page.inputValue('[name=tag_filter]');
const write = async (page, filter) => {
  await page.fill('[name=tag_filter]', filter);
  await page.keyboard.press('Enter');
};
const pick = (page, value) => page.click(`.popup .combobox-text:text-is("${value}")`);
const offeredAre = (page, ...texts) =>
  until(async () => (await offered(page)).join() === texts.join());
const status = (page) => page.textContent('.popup [role=status]');
const focused = (page) => page.evaluate(() => document.activeElement.id);
const asking = (page) => answersAre(page, () => replyOf({ f: 1 }));

export const tests = {
  async 'values of a real hub, with their samples, are offered and found by a part'(page, origin) {
    expectError(page, /status of 500/);
    await open(page, `${origin}/#`);
    await shows(page, 'hot_function');
    await page.click('#choice-app_service');
    await until(async () => (await offered(page)).some((o) => /^pagework [\d,]+$/.test(o)));
    await page.keyboard.type('AGEwor');
    await until(async () => {
      const found = await offered(page);
      return found.length === 1 && /^pagework [\d,]+$/.test(found[0]);
    });
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await conditionsAre(page, 'Process: pagework');
    await page.click('#choice-pod_ns');
    await page.selectOption('#condition-operator', 'REGEXP');
    await page.fill('.popup input', '(a');
    await until(async () => /^bad regular expression/.test(await status(page)));
    await page.keyboard.press('Escape');
  },
  async 'a click shows the values of a tag, another one chooses'(page, origin) {
    const asked = await asking(page);
    await choicesAre(page, { pod_ns: ['shop', 'app'], pod: ['web-1', 'web-2'] });
    await open(page, `${origin}/#`);
    await page.click('#choice-pod_ns');
    await offeredAre(page, 'all', 'shop 1', 'app 1');
    await pick(page, 'app');
    await filterIs(asked, "pod_ns='app'");
    assert.equal(await focused(page), 'choice-pod_ns');
    assert.match(page.url(), /#pod_ns=app$/);
    await choose(page, 'pod', 'web-2');
    await filterIs(asked, "pod_ns='app' AND pod='web-2'");
    assert.equal(await text(page), "pod_ns='app' AND pod='web-2'");
    await choose(page, 'pod', 'all');
    await filterIs(asked, "pod_ns='app'");
    await page.click('[aria-label="remove the filter: Namespace is app"]');
    await filterIs(asked, '');
    assert.equal(await chipOf(page, 'pod_ns'), 'all');
    assert.equal(await focused(page), 'choice-pod_ns');
  },
  async 'more values than a list holds are found by typing; only the newest question counts'(
    page,
    origin,
  ) {
    const pods = Array.from({ length: 2000 }, (_, i) => `pod-${i}`);
    const asked = await asking(page);
    const failed = [];
    let isHeld = false;
    const held = [];
    const questions = await valuesAre(page, (filter) => {
      const part = /pod LIKE '%(.*)%'/.exec(filter)?.[1] ?? '';
      return pods.filter((p) => p.includes(part));
    }, (r) => isHeld && held.push(r));
    const onFailed = (r) => r.url().endsWith('/values') && failed.push(r.postDataJSON());
    await choicesAre(page, { pod: pods.slice(0, 500) });
    await open(page, `${origin}/#pod_ns=app&pod=pod-1999`);
    await conditionsAre(page, 'Namespace: app', 'Pod: pod-1999 (no data)');
    await choicesAre(page, { pod: pods.slice(0, 500) }, true);
    await page.click('#reload');
    await conditionsAre(page, 'Namespace: app', 'Pod: pod-1999');
    await page.click('#choice-pod');
    assert.match(await status(page), /^These 500 values have the most samples\. Type to find/);
    assert.deepEqual((await offered(page)).slice(0, 3), ['all', 'pod-1999', 'pod-0 1']);
    page.on('requestfailed', onFailed);
    isHeld = true;
    await page.keyboard.type('pod-1');
    await until(() => held.length === 1);
    isHeld = false;
    await page.keyboard.type('77');
    await offeredAre(page, 'pod-177 1', ...Array.from({ length: 10 }, (_, i) => `pod-177${i} 1`));
    await until(() => failed.length === 1);
    assert.deepEqual(questions.map((q) => [q.tag, q.tag_filter]), [
      ['pod', "pod_ns='app' AND pod LIKE '%pod-1%'"],
      ['pod', "pod_ns='app' AND pod LIKE '%pod-177%'"],
    ]);
    for (let i = 0; i < 3; i++) await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Enter');
    await filterIs(asked, "pod_ns='app' AND pod='pod-1770'");
    page.off('requestfailed', onFailed);
  },
  async 'operators: not, one of several, a regular expression'(page, origin) {
    const asked = await asking(page);
    await choicesAre(page, { pod: ['a', 'b', 'c'] });
    await valuesAre(page, (filter) => (filter.includes('REGEXP') ? ['web-1', 'web-2'] : []));
    await open(page, `${origin}/#pod=a`);
    await page.click('#choice-pod');
    await page.selectOption('#condition-operator', '!=');
    await filterIs(asked, "pod!='a'");
    await page.selectOption('#condition-operator', 'IN');
    await pick(page, 'c');
    await filterIs(asked, "pod IN ('a', 'c')");
    assert.deepEqual(await page.$$eval('.popup [aria-selected=true]', (all) =>
      all.map((e) => e.textContent)), ['a1', 'c1']);
    await pick(page, 'a');
    await filterIs(asked, "pod IN ('c')");
    await page.fill('.popup input', 'typed');
    await page.keyboard.press('Enter');
    await filterIs(asked, "pod IN ('c', 'typed')");
    await page.click('.condition-done');
    await conditionsAre(page, 'Pod is one of c, typed (no data: typed)');
    await page.click('#choice-pod');
    await page.selectOption('#condition-operator', 'NOT REGEXP');
    await page.fill('.popup input', '^web-\\d');
    await until(async () => (await status(page)) === '2 values match.');
    assert.deepEqual(await complaints(page), []);
    await page.click('.condition-done');
    await filterIs(asked, "pod NOT REGEXP '^web-\\d'");
    await conditionsAre(page, 'Pod does not match ^web-\\d');
  },
  async 'the text changes the conditions, and the conditions change the text'(page, origin) {
    const asked = await asking(page);
    await choicesAre(page, { pod: ['b', 'c'], image: ['i'] });
    await open(page, `${origin}/#`);
    await write(page, 'pod IN ("b", \'c\') and `image` <> \'i\'');
    await filterIs(asked, "pod IN ('b', 'c') AND image!='i'");
    assert.equal(await text(page), "pod IN ('b', 'c') AND image!='i'");
    await conditionsAre(page, 'Pod is one of b, c', 'Image is not i');
    await page.click('[aria-label="remove the filter: Pod is one of b, c"]');
    await filterIs(asked, "image!='i'");
    assert.equal(await text(page), "image!='i'");
    await page.fill('[name=tag_filter]', "thread='gc'");
    await page.keyboard.press('Escape');
    assert.equal(await text(page), "image!='i'");
    await page.fill('[name=tag_filter]', "thread='gc'");
    await page.click('#reset'); // leaves the field
    await filterIs(asked, "thread='gc'");
  },
  async 'text that says more than conditions can is shown as text only'(page, origin) {
    const asked = await asking(page);
    const filter = "pod = 'a'  OR  pod LIKE 'b*'";
    await open(page, `${origin}/#pod=a`);
    await write(page, filter);
    await filterIs(asked, filter);
    assert.match(await page.textContent('.filter-only'), /^This filter says more than single/);
    assert.deepEqual(await conditions(page), []);
    assert.equal(await page.isVisible('#choice-pod'), false);
    assert.equal(await page.isVisible('#add-filter'), false);
    await page.click('#choice-app_service');
    assert.equal(await page.isVisible('#condition-operator'), false);
    await page.fill('.popup input', 'java');
    await page.keyboard.press('Enter');
    await until(() => asked.at(-1).app_service === 'java' && asked.at(-1).tag_filter === filter);
    assert.deepEqual(await complaints(page), []);
    await open(page, page.url());
    await filterIs(asked, filter);
    assert.equal(await text(page), filter);
    await page.click('.filter-only button');
    await filterIs(asked, '');
    assert.ok(await page.isVisible('#choice-pod'));
  },
  async 'a mistake is marked where the hub found it, and what was typed stays'(page, origin) {
    expectError(page, /status of 500/);
    const filter = "pod='中' OR pod_nss='x'";
    const marked = () => page.textContent('.filter-mistake mark');
    await open(page, `${origin}/#`);
    await write(page, filter);
    await page.waitForSelector('.filter-mistake');
    assert.match(await page.textContent('.filter-mistake'),
      /^unknown tag 'pod_nss'; did you mean pod_ns\? position 12 /);
    assert.equal(await marked(), 'pod_nss');
    assert.equal(await page.isVisible('#error'), false);
    assert.equal(await text(page), filter);
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'mistake');
    await page.click('.filter-mistake button');
    assert.equal(await page.$eval('[name=tag_filter]', (e) => e.selectionStart), 11);
    await write(page, "pod='x' OR");
    await until(async () => (await marked()) === '\u00a0');
    await write(page, "pod_nss='x' AND pod='y'"); // of a condition, too
    await until(async () => (await marked()) === 'pod_nss');
    await write(page, '');
    await page.waitForSelector('.filter-mistake', { state: 'detached' });
  },
  async 'filters are made, changed and removed with the keyboard'(page, origin) {
    const asked = await asking(page);
    const press = async (...keys) => {
      for (const key of keys) await page.keyboard.press(key);
    };
    await choicesAre(page, { pod_ns: ['shop', 'app'] });
    await valuesAre(page, () => ['x']);
    await open(page, `${origin}/#`);
    await page.focus('#choice-pod_ns');
    await press('Enter');
    await offeredAre(page, 'all', 'shop 1', 'app 1');
    await press('ArrowUp', 'Enter');
    await filterIs(asked, "pod_ns='app'");
    assert.equal(await focused(page), 'choice-pod_ns');
    await press('Enter', 'Escape');
    assert.equal(await page.$('.popup'), null);
    assert.equal(await focused(page), 'choice-pod_ns');
    await press('Delete');
    await filterIs(asked, '');
    await page.focus('#add-filter');
    await press('Enter');
    await page.keyboard.type('k8s');
    await press('Enter'); // the only one that is left
    await page.keyboard.type('app');
    await press('Enter');
    await until(async () => (await page.getAttribute('.popup input', 'aria-label'))
      === 'value of k8s.label.app');
    await page.keyboard.type('web');
    await press('Enter');
    await filterIs(asked, "k8s.label.app='web'");
    await conditionsAre(page, 'k8s.label.app: web');
    await page.focus('#choice-pod');
    await press('Enter', 'Shift+Tab', 'Shift+Tab', 'Shift+Tab'); // away from the editor
    await until(async () => (await page.$('.popup')) === null);
  },
  async 'labels of the selected pods are offered, for filters and to split by'(page, origin) {
    const asked = await asking(page);
    const names = ['app', 'app.kubernetes.io/version', 'tier'];
    const byLabel = (list) => page.$$eval(`${list} option`, (all) =>
      all.map((o) => o.textContent).filter((text) => text.startsWith('k8s.label.')));
    await choicesAre(page, { 'k8s.label.': names });
    await valuesAre(page, () => ['1.2']);
    await open(page, `${origin}/#`);
    await page.click('#add-filter');
    await page.keyboard.type('k8s.label.app');
    await offeredAre(page, 'k8s.label.app label of the pod',
      'k8s.label.app.kubernetes.io/version label of the pod');
    await pick(page, 'k8s.label.app.kubernetes.io/version');
    await until(async () => (await page.getAttribute('.popup input', 'aria-label'))
      === 'value of k8s.label.app.kubernetes.io/version');
    await page.keyboard.type('1.2');
    await page.keyboard.press('Enter');
    await filterIs(asked, "k8s.label.app.kubernetes.io/version='1.2'");
    assert.deepEqual(await byLabel('#by'), names.map((name) => `k8s.label.${name}`));
    await page.selectOption('#by', 'k8s.label.tier');
    await page.waitForFunction(() => location.hash.includes('by=k8s.label.tier'));
    await page.goto(`${origin}/#by=k8s.label.gone&view=breakdown`);
    await until(async () => (await byLabel('#breakdown-by')).includes('k8s.label.gone'));
    await until(async () => (await page.inputValue('#by')) === 'k8s.label.gone');
  },
  async 'every tag that the hub stores can be chosen'(page, origin) {
    await open(page, `${origin}/#`);
    const { result } = await (await fetch(`${origin}/v1/profile/tags`)).json();
    await page.click('#add-filter');
    await until(async () => (await offered(page)).length > 20);
    const found = await offered(page);
    assert.deepEqual(found.slice(0, 3),
      ['Workload pod_group', 'Cluster pod_cluster', 'Namespace pod_ns']);
    assert.equal(found.length, result.filter((t) => t.stored && !t.same_as).length);
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'tags');
    await page.keyboard.press('Escape');
  },
  async 'tags of single events have a place for these events only'(page, origin) {
    const asked = await asking(page);
    const places = () => page.$$eval('.chip-open', (all) => all.map((e) => e.textContent));
    await choicesAre(page, { gpu_device: ['0', '1'], gpu_stream: ['default'] });
    await open(page, `${origin}/#profile_event_type=hbm-alloc&gpu_stream=default`);
    await conditionsAre(page, 'GPU stream: default');
    await until(async () => (await places()).at(-3) === 'GPU context: all');
    assert.equal((await places()).at(-4), 'GPU: all');
    await choose(page, 'gpu_device', '1');
    await filterIs(asked, "gpu_stream='default' AND gpu_device='1'");
    await choicesAre(page, { rdma_operation: ['send', 'receive'] });
    await open(page, `${origin}/#profile_event_type=rdma`);
    await until(async () => (await places()).includes('RDMA operation: send queue'));
    await page.click('#choice-rdma_operation');
    await offeredAre(page, 'send queue', 'send 1', 'receive 1');
    await pick(page, 'receive');
    await filterIs(asked, "rdma_operation='receive'");
  },
  async 'a condition on a tag that the event does not have says so, and waits'(page, origin) {
    const asked = await asking(page);
    await choicesAre(page, { wait: ['lock'] });
    await open(page, `${origin}/#wait=lock&pod=a`);
    await filterIs(asked, "pod='a'");
    await conditionsAre(page, 'Pod: a', 'Waits for: lock (not part of on-cpu)');
    await write(page, "pod='b'");
    await filterIs(asked, "pod='b'");
    await choicesAre(page, { profile_event_type: ['on-cpu', 'off-cpu'], wait: ['lock'] });
    await page.click('#reload');
    await page.waitForSelector('#choice-profile_event_type option:text-is("off-cpu")', {
      state: 'attached',
    });
    await page.selectOption('#choice-profile_event_type', 'off-cpu');
    await filterIs(asked, "pod='b' AND wait='lock'");
  },
  async 'values of processes and pods are inert and short; the filter has all of them'(
    page,
    origin,
  ) {
    const evil = `a\u202e<img src=x onerror="window.hit=1">\n'${'x'.repeat(4000)}`;
    const asked = await asking(page);
    const label = `k8s.label.\u202e<b>`;
    await choicesAre(page, { pod: [evil] });
    await open(page, `${origin}/#${new URLSearchParams({ [label]: evil })}`);
    await page.click('#choice-pod');
    await page.click('.popup [role=option] >> text=img');
    await until(() => asked.at(-1).tag_filter.includes('pod='));
    const value = `'${evil.replace('\n', '\\n').replace("'", "\\'")}'`;
    assert.equal(asked.at(-1).tag_filter, `\`${label}\`=${value} AND pod=${value}`);
    for (const chip of await page.$$('.chip.chosen .chip-open')) {
      const said = await chip.textContent();
      const title = await chip.getAttribute('title');
      for (const shown of [said, title]) {
        assert.ok(shown.length < 300, `${shown.length}`);
        assert.doesNotMatch(shown, /[\u202e\n]/);
        assert.match(shown, /<img src=x/);
      }
    }
    await page.click('#choice-pod');
    assert.doesNotMatch((await offered(page)).join(''), /[\u202e\n]/);
    assert.deepEqual(await complaints(page), []);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.ok(await fits(page));
  },
  async 'a narrow window has room for the filters and their editors'(page, origin) {
    await asking(page);
    await choicesAre(page, { pod: ['web-1', 'web-2'] });
    await page.setViewportSize({ width: 390, height: 800 });
    await open(page, `${origin}/#pod_ns=app&pod=web-1`);
    await conditionsAre(page, 'Namespace: app', 'Pod: web-1');
    for (const id of ['choice-pod_group', 'choice-pod', 'choice-pod_node', 'add-filter',
      'favourites']) {
      await page.click(`#${id}`);
      const { left, right } = await page.$eval('.popup', (e) => e.getBoundingClientRect().toJSON());
      assert.ok(left >= 0 && right <= 390, `${id}: ${left} to ${right}`);
      assert.ok(await fits(page), id);
      await picture(page, `narrow-${id}`);
      await page.keyboard.press('Escape');
    }
  },
};
