// What the pages can't do by themselves: keep up to date, say how long ago something was, and obey single keys. The pages
// work without it. Everything that comes in is HTML made by the console's own templates.
(() => {
  'use strict';
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Live updates. One stream of server-sent events for each visible tab: browsers allow six connections to a server, so
  // hidden tabs let theirs go, and get what they missed when they are shown.
  let cursor = document.body.dataset.cursor || '0';
  let query = document.body.dataset.live;
  let source, timer, wait = 500;

  const say = (state, word) => {
    const link = $('#link');
    if (!link || link.dataset.state === state) return;
    link.dataset.state = state;
    link.replaceChildren(Object.assign(document.createElement('span'), {className: 'word', textContent: word}));
  };

  const apply = (html) => {
    const incoming = document.createElement('template');
    incoming.innerHTML = html;
    for (const box of $$('[data-new]', incoming.content)) {
      if (document.getElementById(box.dataset.new)) box.remove();
    }
    // What the stream says of a list that has just been filtered anew is of no use any more.
    for (const part of [...incoming.content.children]) {
      if (part.getAttribute('hx-swap-oob') === 'true' && !document.getElementById(part.id)) part.remove();
    }
    const stick = window.innerHeight + window.scrollY > document.body.scrollHeight - 80;
    const before = $('#timeline')?.lastElementChild;
    htmx.swap(document.body, incoming.innerHTML, {swapStyle: 'none', swapDelay: 0, settleDelay: 0});
    prune();
    times();
    const last = $('#timeline')?.lastElementChild;
    if (stick && last && last !== before) last.scrollIntoView({block: 'end'});
  };

  // Cards of questions that have been closed stay where they are, for somebody may be typing, and say so.
  const prune = () => {
    const open = $('#open')?.dataset.keys.split(' ');
    for (const card of open ? $$('#cards > li > .card') : []) {
      if (open.includes(card.dataset.key) || card.classList.contains('closed')) continue;
      if (!card.contains(document.activeElement)) { card.parentElement.remove(); continue; }
      card.classList.add('closed');
      $('.closed-note', card).hidden = false;
      for (const set of $$('fieldset', card)) set.disabled = true;
    }
    const timeline = $('#timeline');
    while (timeline && timeline.children.length > 1000) timeline.firstElementChild.remove();
  };

  const close = () => { clearTimeout(timer); source?.close(); source = undefined; };
  const open = () => {
    close();
    if (!query || document.visibilityState === 'hidden') return;
    source = new EventSource('/live?' + query + '&after=' + cursor);
    source.onopen = () => { wait = 500; say('live', 'Live'); };
    source.onmessage = (message) => {
      if (message.data) apply(message.data);
      cursor = message.lastEventId || cursor;
    };
    source.onerror = () => {
      say('lost', 'Reconnecting');
      close();
      timer = setTimeout(open, wait);
      wait = Math.min(wait * 2, 10000);
    };
  };
  document.addEventListener('visibilitychange', () => (document.visibilityState === 'hidden' ? close() : open()));
  window.addEventListener('pagehide', close);
  window.addEventListener('pageshow', (event) => { if (event.persisted) open(); });
  document.addEventListener('htmx:afterSettle', () => {
    times();
    const list = $('#list');
    if (list && list.dataset.live !== query) { query = list.dataset.live; open(); }
  });

  // Times. The server writes them whole; here they become what a reader wants, and stay right.
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const span = (seconds) => {
    const [unit, size] = units.find(([, size]) => seconds >= size) || units[3];
    return Math.floor(seconds / size) + ' ' + unit;
  };
  const times = () => {
    const now = Date.now();
    for (const time of $$('time')) {
      const at = new Date(time.dateTime);
      const seconds = (now - at) / 1000;
      const text = 'clock' in time.dataset ? at.toLocaleTimeString([], {hourCycle: 'h23'}) :
        Math.abs(seconds) < 2 ? 'now' : seconds > 0 ? span(seconds) + ' ago' : 'in ' + span(-seconds);
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // Keys. They can be turned off, for people whose speech or hands press keys by accident.
  const keysOn = () => localStorage.getItem('ratchet-keys') !== 'off';
  const places = {r: '/', i: '/inbox', d: '/dead', s: '/system'};
  let going = 0;
  const step = (by) => {
    const stops = $$('.run-goal, .letter-error, .event h3, .card h2').filter((stop) => stop.offsetParent);
    if (!stops.length) return;
    const next = stops[Math.max(0, Math.min(stops.length - 1, stops.indexOf(document.activeElement) + by))];
    if (next.tabIndex < 0 && !next.hasAttribute('tabindex')) next.tabIndex = -1;
    next.focus();
    next.scrollIntoView({block: 'nearest'});
  };
  const help = () => { $('#keys-on').checked = keysOn(); $('#help').showModal(); };
  document.addEventListener('keydown', (event) => {
    const typing = event.target.closest('input, textarea, select, dialog');
    if (event.ctrlKey || event.metaKey || event.altKey || typing || !keysOn()) return;
    const key = event.key;
    if (performance.now() - going < 1500 && places[key]) { going = 0; location.href = places[key]; return; }
    going = key === 'g' ? performance.now() : 0;
    const deed = {
      n: () => { location.href = '/new'; }, '/': () => $('#search')?.focus(), '?': help,
      j: () => step(1), k: () => step(-1),
    }[key];
    if (deed) { event.preventDefault(); deed(); }
  });
  document.addEventListener('click', (event) => { if (event.target.closest('#help-open')) help(); });
  document.addEventListener('change', (event) => {
    if (event.target.id === 'keys-on') localStorage.setItem('ratchet-keys', event.target.checked ? 'on' : 'off');
  });

  $('#help-open').hidden = false;
  times();
  setInterval(times, 1000);
  open();
})();
