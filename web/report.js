// Draws the page of `derate report` from the figures that lie in it. No library, no network.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const page = document.getElementById('page');
const percent = (v, digits = 1) => `${(v * 100).toFixed(digits)} %`;
const signed = (v) => (v >= 0 ? '+' : '') + percent(v);
const baseline = data.baseline;
const labels = data.stages[0].policies.map((p) => p.policy);
const colour = (label) => `var(--c${labels.indexOf(label) % 8})`;

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function drawing(name, attributes = {}, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function hint(node, text) {
  node.append(drawing('title', {}, text));
  return node;
}

// Round numbers that cover [low, high].
function ticks(low, high, about = 5) {
  const span = high - low || 1;
  const raw = span / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const out = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) out.push(at);
  return out;
}

const interval = (f) => ('low' in f ? ` (${(f.low * 100).toFixed(1)} to ${(f.high * 100).toFixed(1)})` : '');

function keys(shown) {
  const box = element('div', { class: 'keys' });
  for (const label of shown)
    box.append(element('span', {}, element('span', { class: 'key', style: `background:${colour(label)}` }), label));
  return box;
}

// What hindsight would have given; nothing of real work.
const known = (stage) => [['oracle', stage.oracle], ['two clocks', stage.two_clocks]].filter(([, h]) => h);

// --- the headline table

function promise(policy) {
  const own = policy.delta === data.delta ? '' : ` (of ${percent(1 - policy.delta, 0)})`;
  const apps = `${policy.apps_over} of ${policy.apps.length} apps`;
  if (policy.judged_jobs === 0) return element('span', policy.apps_over ? { class: 'broken' } : {}, `no job of 30 s; ${apps} over${own}`);
  if (policy.broken_jobs === 0 && policy.apps_over === 0) return element('span', { class: 'kept' }, `kept${own}`);
  return element('span', { class: 'broken' }, `broken: ${policy.broken_jobs} of ${policy.judged_jobs} jobs, ${apps}${own}`);
}

// Policies to show beside the baseline: those of which something has run.
const others = (stage) => stage.policies.filter((p) => p.policy !== baseline && p.jobs > 0);

function figureCell(figure, show) {
  const cell = element('td', {}, show(figure.mean));
  if ('low' in figure) cell.append(element('br'), element('small', {}, interval(figure).trim().slice(1, -1)));
  return cell;
}

function headline(stage) {
  const head = element('tr', {}, ...['policy', 'efficiency', 'energy saved', 'mean loss', 'worst application',
    'worst job', 'probing', 'changes/min', 'fixed clock', 'promise'].map((t, i) =>
    element('th', i === 4 || i === 9 ? { class: 'left' } : {}, t)));
  const rows = others(stage).map((p) => element('tr', {},
    element('td', {}, element('span', { class: 'key', style: `background:${colour(p.policy)}` }), p.policy),
    figureCell(p.efficiency_gain_ratio, signed), element('td', {}, percent(p.energy_saving_ratio)),
    figureCell(p.loss_ratio, percent),
    element('td', { class: 'left' }, `${percent(p.worst_loss_ratio)} ${p.worst_app}`),
    element('td', {}, percent(p.worst_job_loss_ratio)), element('td', {}, percent(p.probing_ratio)),
    element('td', {}, p.clock_changes_per_minute.toFixed(1)),
    element('td', {}, 'fixed_clock_gain_ratio' in p ? signed(p.fixed_clock_gain_ratio) : '–'),
    element('td', { class: 'left' }, promise(p))));
  for (const [name, h] of known(stage))
    rows.push(element('tr', { class: 'dim' }, element('td', {}, name), element('td', {}, signed(h.efficiency_gain_ratio)),
      element('td', {}, percent(h.energy_saving_ratio)), element('td', {}, percent(h.loss_ratio)),
      element('td', { class: 'left' }, `${percent(h.worst_loss_ratio)} ${h.worst_app}`),
      ...Array(4).fill(0).map(() => element('td', {}, '–')), element('td', { class: 'left' }, 'in hindsight')));
  for (const p of stage.policies.filter((q) => q.policy !== baseline && q.jobs === 0))
    rows.push(element('tr', {}, element('td', {}, p.policy), element('td', { class: 'left broken', colspan: 9 }, p.failed_jobs ? 'every job failed' : 'not run')));
  return element('div', { class: 'scroll' }, element('table', {}, element('thead', {}, head), element('tbody', {}, ...rows)));
}

// Labels that would lie on one another, moved up.
function apart(labels) {
  const span = ([at, , text, anchor]) => (anchor === 'end' ? [at - text.length * 6.6, at] : [at, at + text.length * 6.6]);
  const placed = [];
  for (const label of labels.sort((a, b) => b[1] - a[1])) {
    const [from, to] = span(label);
    for (const other of placed) {
      const [left, right] = span(other);
      if (from < right && left < to && label[1] > other[1] - 14) label[1] = other[1] - 14;
    }
    placed.push(label);
  }
  return placed;
}

// --- efficiency against loss

function scatter(stage) {
  const wide = Math.min(900, Math.max(340, page.clientWidth)), high = 340;
  const box = { left: 52, right: wide - 16, top: 14, bottom: high - 40 };
  const policies = others(stage);
  const most = Math.max(data.delta * 1.3, ...policies.map((p) => p.loss_ratio.high ?? p.loss_ratio.mean)) * 1.05;
  const gains = [...policies.map((p) => p.efficiency_gain_ratio.high ?? p.efficiency_gain_ratio.mean), stage.two_clocks?.efficiency_gain_ratio ?? 0,
    ...stage.frontier.filter((f) => f.loss_ratio <= most).map((f) => f.efficiency_gain_ratio)];
  const least = Math.min(0, ...policies.map((p) => p.efficiency_gain_ratio.low ?? p.efficiency_gain_ratio.mean));
  const top = Math.max(0.05, ...gains) * 1.08;
  const x = (v) => box.left + (v / most) * (box.right - box.left);
  const y = (v) => box.bottom - ((v - least) / (top - least)) * (box.bottom - box.top);
  const svg = drawing('svg', { viewBox: `0 0 ${wide} ${high}`, role: 'img', 'aria-label': 'efficiency against loss' });
  for (const v of ticks(0, most)) {
    svg.append(drawing('line', { class: 'axis', x1: x(v), x2: x(v), y1: box.top, y2: box.bottom }));
    svg.append(drawing('text', { x: x(v), y: box.bottom + 16, 'text-anchor': 'middle' }, percent(v, 0)));
  }
  for (const v of ticks(least, top)) {
    svg.append(drawing('line', { class: 'axis', x1: box.left, x2: box.right, y1: y(v), y2: y(v) }));
    svg.append(drawing('text', { x: box.left - 6, y: y(v) + 4, 'text-anchor': 'end' }, signed(v).replace(/\.0/, '')));
  }
  svg.append(drawing('text', { x: box.right, y: high - 6, 'text-anchor': 'end' }, 'mean loss of performance →'));
  svg.append(drawing('line', { class: 'promise', x1: x(data.delta), x2: x(data.delta), y1: box.top, y2: box.bottom }));
  svg.append(drawing('text', { x: x(data.delta) + 5, y: box.bottom - 6 }, 'promise'));
  const frontier = stage.frontier.filter((f) => f.loss_ratio <= most);
  svg.append(drawing('polyline', { class: 'frontier', points: frontier.map((f) => `${x(f.loss_ratio)},${y(f.efficiency_gain_ratio)}`).join(' ') }));
  for (const f of frontier)
    svg.append(hint(drawing('circle', { cx: x(f.loss_ratio), cy: y(f.efficiency_gain_ratio), r: 2, fill: 'var(--soft)' }),
      `fixed ${f.clock_mhz} MHz: ${signed(f.efficiency_gain_ratio)}, loss ${percent(f.loss_ratio)}`));
  const named = [];  // [x, y, text, anchor]
  for (const [name, h] of known(stage)) {
    const at = [x(h.loss_ratio), y(h.efficiency_gain_ratio)];
    svg.append(hint(drawing('path', { d: `M${at[0]} ${at[1] - 6}l6 6-6 6-6-6z`, fill: 'none', stroke: 'var(--ink)', 'stroke-width': 1.5 }),
      `${name}: ${signed(h.efficiency_gain_ratio)}, loss ${percent(h.loss_ratio)}`));
    named.push([at[0] - 10, at[1] - 2, name, 'end']);
  }
  policies.forEach((p) => {
    const loss = p.loss_ratio, gain = p.efficiency_gain_ratio, stroke = colour(p.policy);
    if ('low' in loss) {
      svg.append(drawing('line', { x1: x(loss.low), x2: x(loss.high), y1: y(gain.mean), y2: y(gain.mean), stroke, opacity: 0.5 }));
      svg.append(drawing('line', { x1: x(loss.mean), x2: x(loss.mean), y1: y(gain.low), y2: y(gain.high), stroke, opacity: 0.5 }));
    }
    svg.append(hint(drawing('circle', { cx: x(loss.mean), cy: y(gain.mean), r: 5, fill: stroke }),
      `${p.policy}: ${signed(gain.mean)}, loss ${percent(loss.mean)}`));
    const last = x(loss.mean) > box.right - 110;
    named.push([x(loss.mean) + (last ? -9 : 9), Math.min(y(gain.mean) + 4, box.bottom - 7), p.policy, last ? 'end' : 'start']);
  });
  for (const [at, height, text, anchor] of apart(named))
    svg.append(drawing('text', { class: 'strong', x: at, y: height, 'text-anchor': anchor }, text));
  return svg;
}

// --- an application a row

// A drawing of `count` rows with an axis that holds `values` and `mark`, and its scale.
function rowsFrame(title, count, row, values, mark) {
  const wide = Math.max(320, Math.min(520, page.clientWidth < 700 ? page.clientWidth : page.clientWidth / 2 - 16));
  const left = 92, top = 30, high = top + count * row + 6;
  const low = Math.min(0, ...values), most = Math.max(0.01, mark ?? 0, ...values);
  const x = (v) => left + ((v - low) / (most - low)) * (wide - left - 12);
  const svg = drawing('svg', { viewBox: `0 0 ${wide} ${high}`, role: 'img', 'aria-label': title });
  for (const v of ticks(low, most, 4)) {
    svg.append(drawing('line', { class: 'axis', x1: x(v), x2: x(v), y1: top - 6, y2: high }));
    svg.append(drawing('text', { x: x(v), y: top - 12, 'text-anchor': 'middle' }, percent(v, 0)));
  }
  const drawMark = () => mark !== undefined && svg.append(drawing('line', { class: 'promise', x1: x(mark), x2: x(mark), y1: top - 6, y2: high }));
  return { svg, x, left, top, drawMark };
}

function bars(stage, title, value, mark, oracle) {
  const shown = others(stage);
  const apps = stage.apps;
  const thick = 5, row = shown.length * (thick + 1) + 9;
  const all = shown.flatMap((p) => p.apps.filter((a) => a.jobs > 0).map(value)).concat(stage.hindsight.map(oracle));
  const { svg, x, left, top, drawMark } = rowsFrame(title, apps.length, row, all, mark);
  apps.forEach((name, i) => {
    const at = top + i * row;
    svg.append(drawing('text', { class: 'strong', x: left - 8, y: at + row / 2, 'text-anchor': 'end' }, name));
    shown.forEach((p, j) => {
      const app = p.apps.find((a) => a.app === name);
      if (!app || app.jobs === 0) return;
      const v = value(app);
      svg.append(hint(drawing('rect', { x: Math.min(x(0), x(v)), width: Math.max(0.6, Math.abs(x(v) - x(0))), y: at + j * (thick + 1),
        height: thick, fill: colour(p.policy) }), `${name}, ${p.policy}: ${percent(v)}`));
    });
    if (!stage.hindsight[i]) return;
    const best = x(oracle(stage.hindsight[i]));
    svg.append(hint(drawing('line', { x1: best, x2: best, y1: at - 1, y2: at + row - 8, stroke: 'var(--ink)', 'stroke-width': 1.5 }),
      `${name}, oracle: ${percent(oracle(stage.hindsight[i]))}`));
  });
  drawMark();
  return element('div', {}, element('p', {}, title), svg);
}

// --- what was measured of real work

const kActivity = ['graphics', 'sm', 'occupancy', 'tensor', 'fp64', 'fp32', 'fp16', 'integer', 'dram'];

function measured(stage) {
  const several = stage.policies.length > 1;
  const head = element('tr', {}, ...['command', ...(several ? ['policy'] : []), 'rate', '', 'power', 'SM clock', 'energy', ...kActivity].map((t, i) =>
    element('th', t === '' || (several && i === 1) ? { class: 'left' } : {}, t)));
  const rows = stage.apps.flatMap((name) => stage.policies.flatMap((p) => p.apps.filter((a) => a.app === name).map((a) => {
    const cells = [element('td', {}, name), ...(several ? [element('td', { class: 'left' }, p.policy)] : [])];
    if (a.jobs === 0) return element('tr', {}, ...cells, element('td', { class: 'left broken', colspan: 5 + kActivity.length }, `failed: ${a.error}`));
    const digits = Math.min(3, Math.max(0, 2 - Math.floor(Math.log10(a.rate || 1))));
    cells.push(element('td', {}, a.rate.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits })), element('td', { class: 'left' }, `${a.work_unit}/s`),
      element('td', {}, `${Math.round(a.mean_power_watts)} W`),
      element('td', {}, 'mean_clock_mhz' in a ? `${Math.round(a.mean_clock_mhz)} MHz` : '–'),
      element('td', {}, `${(a.energy_joules / 1000).toFixed(2)} kJ`));
    for (const key of kActivity)
      cells.push(key in a.activity ? element('td', { class: 'heat', style: `--share:${Math.round(a.activity[key] * 100)}%` }, percent(a.activity[key], 0)) : element('td', {}, '–'));
    return element('tr', {}, ...cells);
  })));
  return element('div', { class: 'scroll' }, element('table', { class: 'dense' }, element('thead', {}, head), element('tbody', {}, ...rows)));
}

// --- beside what others published

function dumbbells(title, rows, others, there, here, mark) {
  const row = 18, all = [...rows.flatMap((r) => [there(r), here(r)]), ...others.map(here)];
  const { svg, x, left, top, drawMark } = rowsFrame(title, rows.length, row, all, mark);
  drawMark();
  rows.forEach((r, i) => {
    const y = top + i * row + row / 2;
    const far = Math.abs(there(r) - here(r)) > 0.03;
    svg.append(drawing('text', { class: 'strong', x: left - 8, y: y + 4, 'text-anchor': 'end' }, r.app));
    svg.append(drawing('line', { x1: x(there(r)), x2: x(here(r)), y1: y, y2: y, stroke: far ? 'var(--bad)' : 'var(--soft)', 'stroke-width': 1.5 }));
    for (const other of others.filter((o) => o.app === r.app))
      svg.append(hint(drawing('path', { d: `M${x(here(other))} ${y - 4}v8`, stroke: 'var(--c2)', 'stroke-width': 2 }), `${r.app}, ${other.title}: ${percent(here(other))}`));
    svg.append(hint(drawing('circle', { cx: x(there(r)), cy: y, r: 4, fill: 'var(--paper)', stroke: 'var(--ink)', 'stroke-width': 1.5 }), `${r.app}, published: ${percent(there(r))}`));
    svg.append(hint(drawing('circle', { cx: x(here(r)), cy: y, r: 4, fill: 'var(--c1)' }), `${r.app}, here: ${percent(here(r))}`));
  });
  return element('div', {}, element('p', {}, title), svg);
}

function published(stage) {
  const names = [...new Set(stage.published.map((p) => p.policy))];
  const choice = element('select', { 'aria-label': 'policy' }, ...names.map((n) => element('option', {}, n)));
  const frame = element('div');
  const show = () => {
    const mine = (s) => (s.published ?? []).filter((p) => p.policy === choice.value);
    const rows = mine(stage);
    const others = data.stages.filter((s) => s !== stage).flatMap((s) => mine(s).map((p) => ({ ...p, title: s.title })));
    const mean = (key) => rows.reduce((sum, r) => sum + r[key], 0) / rows.length;
    frame.replaceChildren(
      element('p', {}, `Means over ${rows.length} applications: efficiency ${signed(mean('published_efficiency_gain_ratio'))} published, ${signed(mean('efficiency_gain_ratio'))} here; loss ${percent(mean('published_loss_ratio'))} published, ${percent(mean('loss_ratio'))} here. Hollow: published. Full: here. Red: more than 3 points apart.${others.length ? ` Bars: here, ${[...new Set(others.map((o) => o.title))].join('; ')}.` : ''}`),
      element('div', { class: 'columns' },
        dumbbells('Gain of efficiency', rows, others, (r) => r.published_efficiency_gain_ratio, (r) => r.efficiency_gain_ratio),
        dumbbells('Loss of performance', rows, others, (r) => r.published_loss_ratio, (r) => r.loss_ratio, data.delta)));
  };
  choice.addEventListener('change', show);
  show();
  return element('div', {}, choice, frame);
}

// --- one job in time

function series(trace, wide) {
  const left = 52, right = wide - 12, n = trace.clock.length;
  const x = (i) => left + (n > 1 ? i / (n - 1) : 0) * (right - left);
  const panels = [
    ['SM clock, MHz', [['clock', 'var(--c1)'], ['asked', 'var(--c2)']]],
    ['power, W', [['power', 'var(--c3)']]],
    ['utilisation, %', [['gpu', 'var(--c4)'], ['memory', 'var(--c6)']]],
  ];
  const panel = 120, svg = drawing('svg', { viewBox: `0 0 ${wide} ${panels.length * panel + 24}`, role: 'img', 'aria-label': 'one job in time' });
  panels.forEach(([title, lines], k) => {
    const top = k * panel + 18, bottom = (k + 1) * panel - 8;
    const values = lines.flatMap(([key]) => trace[key]).filter((v) => v !== null);
    if (values.length === 0) return;
    const low = k === 2 ? 0 : Math.min(...values) * (k === 1 ? 0 : 0.97), most = k === 2 ? 100 : Math.max(...values) * 1.03;
    const y = (v) => bottom - ((v - low) / (most - low || 1)) * (bottom - top);
    if (k === 0) trace.probing.forEach((p, i) => p && svg.append(drawing('rect', { x: x(i), width: Math.max(1, x(1) - x(0)), y: top, height: panels.length * panel - top, fill: 'var(--faint)', opacity: 0.6 })));
    for (const v of ticks(low, most, 3)) {
      svg.append(drawing('line', { class: 'axis', x1: left, x2: right, y1: y(v), y2: y(v) }));
      svg.append(drawing('text', { x: left - 6, y: y(v) + 4, 'text-anchor': 'end' }, Math.round(v)));
    }
    svg.append(drawing('text', { class: 'strong', x: left, y: top - 5 }, `${title}${lines.length > 1 ? ': ' : ''}`));
    lines.forEach(([key, stroke], j) => {
      if (lines.length > 1) svg.append(drawing('text', { x: left + 108 + j * 70, y: top - 5, style: `fill:${stroke}` }, key));
      let path = '', pen = false, before = null;
      trace[key].forEach((v, i) => {
        if (v === null) { pen = false; return; }
        const step = key === 'clock' || key === 'asked';
        path += pen ? (step ? `H${x(i).toFixed(1)}V${y(v).toFixed(1)}` : `L${x(i).toFixed(1)} ${y(v).toFixed(1)}`) : `M${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
        pen = true; before = v;
      });
      svg.append(drawing('path', { d: path, fill: 'none', stroke, 'stroke-width': 1.5, ...(key === 'asked' ? { 'stroke-dasharray': '3 2' } : {}) }));
    });
  });
  for (const v of ticks(0, (n - 1) * trace.step_seconds, 8))
    svg.append(drawing('text', { x: x(v / trace.step_seconds), y: panels.length * panel + 16, 'text-anchor': 'middle' }, `${Math.round(v)} s`));
  return svg;
}

function jobs() {
  const apps = [...new Set(data.traces.map((t) => t.app))];
  const app = element('select', { 'aria-label': 'application' }, ...apps.map((a) => element('option', {}, a)));
  const policy = element('select', { 'aria-label': 'policy' }, ...[...new Set(data.traces.map((t) => t.policy))].map((p) => element('option', {}, p)));
  const stage = element('select', { 'aria-label': 'stage' }, ...data.stages.map((s, i) => element('option', { value: i }, s.title)));
  if (data.stages.length < 2) stage.hidden = true;
  const frame = element('div'), reason = element('div', { class: 'reason' });
  if (policy.options.length > 1) policy.selectedIndex = policy.options.length - 1;
  function draw() {
    const trace = data.traces.find((t) => t.app === app.value && t.policy === policy.value && t.stage === Number(stage.value));
    frame.replaceChildren(...(trace ? [series(trace, Math.min(1100, Math.max(340, page.clientWidth)))] : ['No such job.']));
    if (!trace) return;
    const say = (i) => {
      const known = trace.remarks.filter(([at]) => at <= i);
      reason.textContent = `job ${trace.job}` + (known.length ? `, at ${(i * trace.step_seconds).toFixed(1)} s: ${known[known.length - 1][1]}` : '');
    };
    say(trace.clock.length - 1);
    frame.firstChild.addEventListener('pointermove', (event) => {
      const box = frame.firstChild.getBoundingClientRect(), scale = box.width / frame.firstChild.viewBox.baseVal.width;
      const share = ((event.clientX - box.left) / scale - 52) / (frame.firstChild.viewBox.baseVal.width - 64);
      say(Math.round(Math.min(1, Math.max(0, share)) * (trace.clock.length - 1)));
    });
  }
  for (const select of [app, policy, stage]) select.addEventListener('change', draw);
  draw();
  return element('div', {}, stage, app, policy, frame, reason);
}

// --- stress

const shade = (value, most, ink) => (value === null ? element('td', { class: 'dim' }, '–')
  : element('td', { style: `background:color-mix(in srgb, var(${ink}) ${(Math.max(0, value) / most * 60).toFixed(0)}%, var(--paper))` }, percent(value)));

// Values of the chosen stages by two axes; where other things vary, too, the worst of them, which is
// the least where `ink` is that of good.
function heat(stages, axisX, axisY, value, title, ink = '--bad') {
  const worst = ink === '--bad' ? Math.max : Math.min;
  const values = (axis) => (axis ? [...new Set(stages.map((s) => s.stress[axis]))] : [null]);
  const known = (list) => list.map(value).filter((v) => v !== null);
  const most = Math.max(0.02, ...known(stages));
  const cell = (x, y) => {
    const here = known(stages.filter((s) => s.stress[axisX] === x && (y === null || s.stress[axisY] === y)));
    return shade(here.length ? worst(...here) : null, most, ink);
  };
  const row = (name, cells) => element('tr', {}, element('td', {}, String(name)), ...cells);
  const head = (name, titles) => element('tr', {}, element('th', {}, name), ...titles.map((t) => element('th', {}, String(t))));
  const table = axisY
    ? [head(`${data.axes[axisY]} ↓, ${data.axes[axisX]} →`, values(axisX)), ...values(axisY).map((y) => row(y, values(axisX).map((x) => cell(x, y))))]
    : [head(data.axes[axisX], ['']), ...values(axisX).map((x) => row(x, [cell(x, null)]))];
  return element('div', {}, element('p', {}, title), element('div', { class: 'scroll' }, element('table', {}, ...table)));
}

function choice(name, values, shown = (v) => v) {
  const out = element('select', { 'aria-label': name }, ...values.map((v) => element('option', { value: v }, shown(v))));
  out.hidden = values.length < 2;
  return out;
}

function stress() {
  const varied = Object.keys(data.axes).filter((a) => new Set(data.stages.map((s) => s.stress[a])).size > 1);
  if (varied.length === 0) return null;
  const policy = choice('policy', labels.filter((l) => l !== baseline));
  const chip = choice('chip', [...new Set(data.stages.map((s) => s.chip))]);
  const across = choice('across', varied, (a) => `${data.axes[a]} →`), down = choice('down', varied.slice().reverse(), (a) => `${data.axes[a]} ↓`);
  if (labels.includes('geepafs')) policy.value = 'geepafs';
  const note = element('p'), frame = element('div', { class: 'columns' });
  const draw = () => {
    const stages = data.stages.filter((s) => s.chip === chip.value);
    const of = (key) => (stage) => { const p = stage.policies.find((q) => q.policy === policy.value); return p && p.jobs > 0 ? key(p) ?? null : null; };
    const second = varied.length > 1 && down.value !== across.value ? down.value : undefined;
    const rest = varied.filter((a) => a !== across.value && a !== second);
    note.textContent = rest.length ? `Of ${rest.map((a) => data.axes[a]).join(' and ')} each cell shows the worst.` : '';
    frame.replaceChildren(
      heat(stages, across.value, second, of((p) => p.worst_loss_ratio), 'Worst application’s loss'),
      heat(stages, across.value, second, of((p) => p.broken_ratio), 'Share of jobs with a broken promise'),
      heat(stages, across.value, second, of((p) => p.efficiency_gain_ratio.mean), 'Gain of efficiency', '--good'));
  };
  for (const select of [policy, chip, across, down]) select.addEventListener('change', draw);
  draw();
  return element('div', {}, policy, chip, across, down, note, frame);
}

// --- the page

// Policies against the baseline, the chosen stage's.
function judged(stage) {
  return [headline(stage),
    element('h2', {}, 'Efficiency against loss'),
    element('p', {}, 'Each policy with its 95 % intervals. ' + (stage.frontier.length ? 'The line is what one constant clock for all work gives: a policy below it has done nothing that a fixed setting would not.' : '')), scatter(stage),
    element('h2', {}, 'Application by application'),
    element('p', {}, stage.hindsight.length ? 'The black mark is the oracle: the best constant clock for that application that keeps the promise.' : ''),
    keys(labels.filter((l) => l !== baseline)),
    element('div', { class: 'columns' },
      bars(stage, 'Gain of efficiency', (a) => a.efficiency_gain_ratio.mean, undefined, (h) => h.oracle.efficiency_gain_ratio),
      bars(stage, 'Loss of performance', (a) => a.loss_ratio.mean, data.delta, (h) => h.oracle.loss_ratio))];
}

function draw() {
  page.replaceChildren();
  const real = data.place === 'real';
  page.append(element('h1', {}, data.experiment), element('p', {}, real
    ? `${data.stages[0].apps.length} commands on ${data.stages[0].chip}, ${data.repetitions} time${data.repetitions > 1 ? 's' : ''} each, after ${data.idle_seconds} s idle. Nothing was set.`
    : `${'work_s' in data.axes ? 'Jobs' : `${data.work_seconds} s jobs`}${'idle_s' in data.axes ? '' : ` after ${data.idle_seconds} s idle`}, ${data.repetitions} repetition${data.repetitions > 1 ? 's' : ''}${data.place === 'served' ? ', in real time' : ''}; the promise: performance at least ${percent(1 - data.delta, 0)} of ${baseline}’s.`));
  if (data.sessions_run < data.sessions)
    page.append(element('p', { class: 'broken' }, `Not whole: ${data.sessions_run} of ${data.sessions} sessions have run.`));
  const several = Object.keys(data.axes).length > 0 && data.stages.length > 1 ? stress() : null;
  if (several) page.append(element('h2', {}, 'Under stress'), several);
  const frame = element('div');
  const choice = element('select', { 'aria-label': 'stage' }, ...data.stages.map((s, i) => element('option', { value: i }, s.title)));
  const show = () => {
    const stage = data.stages[Number(choice.value)];
    frame.replaceChildren();
    if (real)
      frame.append(element('h2', {}, 'Measured'), element('p', {}, 'Means over each command’s own time. Activity is the share of cycles in which a unit was busy, of dram the share of the bandwidth, as the GPU’s counters have it.'), measured(stage));
    if (labels.length > 1)
      frame.append(element('h2', {}, data.stages.length > 1 ? stage.title : `Policies on ${stage.title}`), ...judged(stage));
    if (stage.published) frame.append(element('h2', {}, 'Beside the published figures'), published(stage));
  };
  choice.addEventListener('change', show);
  if (data.stages.length > 1) page.append(element('h2', {}, 'Stage'), choice);
  page.append(frame);
  show();
  if (data.traces.length)
    page.append(element('h2', {}, 'One job in time'), element('p', {}, 'Shaded: at clocks that were set to learn from. Point at the chart to read why.'), jobs());
  page.append(element('footer', {}, real ? `Power is the GPU’s energy counter over the time. Made by derate ${data.version}.`
    : `Efficiency is performance per watt; loss is 1 − performance over ${baseline}’s in the same order, start-up and probing included, over whole jobs. A promise is broken by a job that takes at least 30 s under the baseline and loses more. Intervals: percentile bootstrap over applications and jobs. Made by derate ${data.version}.`));
}

draw();
let wide = page.clientWidth;
addEventListener('resize', () => {
  if (page.clientWidth === wide) return;
  wide = page.clientWidth;
  draw();
});
