"use strict";
// Draws the timeline from the data blocks of the page. Text from outside is only ever set as textContent.
(() => {
  const $ = (id) => document.getElementById(id);
  const el = (name, className, text) => {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const svg = (name, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };

  // ---- data -------------------------------------------------------------------------------
  const facts = JSON.parse($("facts").textContent);
  const column = (id, type) => {
    const binary = atob($(id).textContent.trim());
    const bytes = Uint8Array.from(binary, (c) => c.charCodeAt(0));
    return new type(bytes.buffer);
  };
  const pts = column("column-pts", Float64Array);
  const reasons = column("column-reason", Uint8Array);
  const count = pts.length;
  const curves = ["activity", "scene", "luma", "flicker", "ghosting", "noise"].map((id) => ({
    id, values: column(`column-${id}`, Uint16Array), limit: facts.limits[id], lane: $(`lane-${id}`), top: 65535,
  }));
  // Few cells move even where much happens: the lane ends at the highest score, or twice the limit.
  const active = curves[0];
  active.top = active.values.reduce((a, b) => Math.max(a, b), 2 * active.limit * 65535) || 65535;
  const episodes = facts.episodes;
  const stills = [...document.querySelectorAll(".gallery figure")].map((figure) => ({
    figure, img: figure.querySelector("img"), frame: Number(figure.dataset.frame), pts: Number(figure.dataset.pts),
    reason: figure.dataset.reason, tone: figure.dataset.tone,
  }));
  const markers = facts.markers;
  if (count === 0) return;

  const first = pts[0];
  // A frame lasts until the next one; the last is given the mean of the others.
  const frameMs = count > 1 ? (pts[count - 1] - pts[0]) / (count - 1) : 1;
  const last = Math.max(pts[count - 1] + frameMs, first + 1);
  const view = { from: first, to: last, cursor: 0, picked: -1 };

  const clock = (ms) => {
    const abs = Math.abs(Math.round(ms));
    const pad = (n, digits) => String(n).padStart(digits, "0");
    const hours = Math.floor(abs / 3600000), minutes = Math.floor(abs / 60000) % 60;
    const tail = `${pad(Math.floor(abs / 1000) % 60, 2)}.${pad(abs % 1000, 3)}`;
    return (ms < 0 ? "-" : "") + (hours ? `${hours}:${pad(minutes, 2)}:${tail}` : `${minutes}:${tail}`);
  };
  const score = (value) => (value / 65535).toFixed(3);
  const group = (n) => n.toLocaleString("en-US");
  const words = (name) => name.replaceAll("_", " ");
  /** First frame with pts >= ms. */
  const lowerBound = (ms) => {
    let low = 0, high = count;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (pts[mid] < ms) low = mid + 1; else high = mid;
    }
    return low;
  };
  const frameAt = (ms) => Math.min(count - 1, Math.max(0, lowerBound(ms + 1e-6) - 1));
  const known = new Set(["scene_cut", "artifact_suspected", "keyframe_keep", "context_observation"]);
  const typeClass = (type) => (known.has(type) ? type : "named");

  // ---- geometry ---------------------------------------------------------------------------
  const plot = $("plot"), film = $("film"), axis = $("axis"), lanes = $("markers-track");
  const cursor = $("cursor"), range = $("range");
  let width = 0, left = 0;
  const measure = () => {
    const box = axis.getBoundingClientRect();
    width = Math.max(1, box.width);
    left = box.left - plot.getBoundingClientRect().left;
  };
  const x = (ms) => ((ms - view.from) / (view.to - view.from)) * width;
  const time = (px) => view.from + (px / width) * (view.to - view.from);

  const drawAxis = () => {
    const steps = [10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5];
    const wanted = (view.to - view.from) / Math.max(2, width / 96);
    const step = steps.find((s) => s >= wanted) ?? 864e5;
    const root = svg("svg", { viewBox: `0 0 ${width} 26`, "aria-hidden": "true" });
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
      const at = x(t);
      root.append(svg("line", { x1: at, x2: at, y1: 0, y2: 5, class: "limit" }));
      const label = svg("text", { x: Math.min(at + 3, width - 44), y: 17 });
      label.textContent = step >= 1000 ? clock(t).slice(0, -4) : clock(t);
      if (at < width - 30) root.append(label);
    }
    axis.replaceChildren(root);
  };

  /** Path over pixel columns: through every point when sparse, else down each column's min and max. */
  const trace = (values, height, top) => {
    const from = Math.max(0, lowerBound(view.from) - 1), to = Math.min(count, lowerBound(view.to) + 1);
    const y = (v) => (height - 3 - (v / top) * (height - 6)).toFixed(1);
    const points = [];
    if (to - from <= 2 * width) {
      for (let i = from; i < to; i++) points.push(`${x(pts[i]).toFixed(1)} ${y(values[i])}`);
    } else {
      let i = from;
      while (i < to) {
        const px = Math.floor(x(pts[i]));
        let low = values[i], high = low, lowAt = i, highAt = i;
        for (; i < to && Math.floor(x(pts[i])) === px; i++) {
          if (values[i] < low) { low = values[i]; lowAt = i; }
          if (values[i] > high) { high = values[i]; highAt = i; }
        }
        const pair = [`${px} ${y(low)}`, `${px} ${y(high)}`];
        points.push(...(lowAt < highAt ? pair : pair.reverse()));
      }
    }
    return points;
  };
  const episodeRects = (height) => episodes.flatMap((episode) => {
    const end = (episode.end_pts_ms ?? last - frameMs) + frameMs;
    if (end < view.from || episode.start_pts_ms > view.to) return [];
    const a = Math.max(-2, x(episode.start_pts_ms)), b = Math.min(width + 2, x(end));
    const rect = svg("rect", { class: "episode", x: a, width: Math.max(1.5, b - a), y: 0, height });
    const title = svg("title", {});
    title.textContent = `activity, ${clock(episode.start_pts_ms)} to ${clock(end - frameMs)}, peak ${episode.peak_score.toFixed(3)}, ${episode.place}`;
    rect.append(title);
    return [rect];
  });
  const drawCurve = (curve) => {
    const track = curve.lane.querySelector(".track"), height = track.clientHeight;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${curve.lane.dataset.label} over time` });
    for (const level of [0, 0.5, 1]) {
      const at = height - 3 - level * (height - 6);
      root.append(svg("line", { x1: 0, x2: width, y1: at, y2: at, class: "grid" }));
    }
    if (curve === active) root.append(...episodeRects(height));
    const points = trace(curve.values, height, curve.top);
    if (points.length > 0) {
      const start = points[0].split(" ")[0], end = points[points.length - 1].split(" ")[0];
      root.append(svg("path", { class: "under", d: `M${start} ${height - 3}L${points.join("L")}L${end} ${height - 3}Z` }));
      root.append(svg("path", { class: "band", d: `M${points.join("L")}` }));
    }
    if (curve.limit !== null) {
      const at = height - 3 - ((curve.limit * 65535) / curve.top) * (height - 6);
      root.append(svg("line", { x1: 0, x2: width, y1: at, y2: at, class: "limit" }));
    }
    track.replaceChildren(root);
  };

  const types = [...new Set(markers.map((m) => m.event_type))]
    .sort((a, b) => [...known].indexOf(a) - [...known].indexOf(b));
  const ROW = 17;
  const drawMarkers = () => {
    const height = types.length * ROW + 12;
    lanes.style.height = `${height}px`;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${markers.length} markers by type over time` });
    const ends = new Map();
    markers.forEach((marker, index) => {
      const end = Math.max(marker.end_pts_ms + frameMs, marker.start_pts_ms);
      if (end < view.from || marker.start_pts_ms > view.to) return;
      const a = Math.max(-2, x(marker.start_pts_ms)), b = Math.min(width + 2, x(end));
      // Past one rectangle a pixel nothing more can be seen, and 100,000 markers would stall the page.
      const key = marker.event_type + marker.status;
      if (index !== view.picked && b - (ends.get(key) ?? -1e9) < 0.75) return;
      ends.set(key, b);
      const rect = svg("rect", {
        class: `mark ${typeClass(marker.event_type)} ${marker.status}${index === view.picked ? " on" : ""}`,
        x: a, width: Math.max(marker.event_type === "scene_cut" ? 3 : 1.5, b - a - 0.5), rx: 2,
        y: 6 + types.indexOf(marker.event_type) * ROW + (marker.status === "finalized" ? 0 : 2),
        height: marker.status === "finalized" ? ROW - 2 : ROW - 6,
      });
      rect.dataset.index = index;
      const title = svg("title", {});
      title.textContent = `${words(marker.event_type)}, ${marker.status}, ${clock(marker.start_pts_ms)} to ${clock(marker.end_pts_ms)}, confidence ${marker.confidence.toFixed(3)}`;
      rect.append(title);
      root.append(rect);
    });
    lanes.replaceChildren(root);
  };

  const rank = { cut: 0, activity: 1, artifact: 2, plain: 3 };
  const drawFilm = () => {
    if (!film) return;
    const placed = [], height = film.clientHeight;
    const inView = stills.filter((s) => s.pts >= view.from && s.pts <= view.to);
    const order = [...inView].sort((a, b) => rank[a.tone] - rank[b.tone] || a.pts - b.pts);
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const thumbs = [];
    for (const still of order) {
      const ratio = still.img.naturalWidth ? still.img.naturalWidth / still.img.naturalHeight : facts.ratio;
      const w = Math.min(width, Math.max(30, (height - 28) * ratio));
      const center = x(still.pts), at = Math.min(Math.max(0, center - w / 2), width - w);
      if (placed.some((p) => at < p.at + p.w + 6 && p.at < at + w + 6)) continue;
      placed.push({ at, w });
      thumbs.push({ still, at, w, center });
    }
    for (const { still, at, w, center } of thumbs.sort((a, b) => a.at - b.at)) {
      const button = el("button", `thumb ${still.tone}`);
      button.type = "button";
      button.tabIndex = -1;
      button.setAttribute("aria-label", `Still of frame ${still.frame} at ${clock(still.pts)}, ${words(still.reason)}`);
      button.style.left = `${at}px`;
      button.style.width = `${w}px`;
      const img = el("img");
      img.src = still.img.src;
      img.alt = "";
      img.draggable = false;
      button.append(img);
      button.addEventListener("click", () => showStill(stills.indexOf(still)));
      still.thumb = button;
      root.append(svg("line", { class: `stem ${still.tone}`, x1: center, x2: center, y1: height - 20, y2: height }));
    }
    for (const still of stills) if (!thumbs.some((t) => t.still === still)) still.thumb = null;
    film.replaceChildren(root, ...thumbs.map((t) => t.still.thumb));
  };

  // ---- cursor -----------------------------------------------------------------------------
  const readout = $("readout");
  const item = (name, value) => {
    const span = el("span", "num");
    span.append(`${name} `, el("b", "", value));
    return span;
  };
  const drawCursor = () => {
    const i = view.cursor, at = x(pts[i]);
    cursor.hidden = at < -1 || at > width + 1;
    cursor.style.transform = `translateX(${left + at}px)`;
    for (const curve of curves) curve.lane.querySelector(".now").textContent = score(curve.values[i]);
    const frame = facts.first_frame + i;
    readout.replaceChildren(item("Time", clock(pts[i])), item("Frame", group(frame)), item("Gate", words(facts.reasons[reasons[i]])));
    const during = episodes.find((e) => e.start_frame <= frame && frame <= (e.end_frame ?? frame));
    if (during) readout.append(item("Activity", during.place));
    const here = markers.filter((m) => m.status !== "finalized" && m.start_frame <= frame && frame <= m.end_frame);
    for (const m of here.slice(0, 3)) readout.append(item("Marker", `${words(m.event_type)} ${m.confidence.toFixed(2)}`));
    let near = null;
    for (const still of stills) {
      still.thumb?.classList.remove("near");
      if (still.thumb && still.pts <= pts[i] + 0.5 && (!near || still.pts > near.pts)) near = still;
    }
    near?.thumb.classList.add("near");
    plot.setAttribute("aria-valuenow", i);
    plot.setAttribute("aria-valuetext", `frame ${frame}, ${clock(pts[i])}, ${curves.map((c) => `${c.lane.dataset.label} ${score(c.values[i])}`).join(", ")}, ${words(facts.reasons[reasons[i]])}`);
  };
  const setCursor = (index) => {
    view.cursor = Math.min(count - 1, Math.max(0, index));
    const t = pts[view.cursor];
    if (t < view.from || t > view.to) setRange(t - (view.to - view.from) / 2, t + (view.to - view.from) / 2);
    else drawCursor();
  };

  // ---- zoom -------------------------------------------------------------------------------
  const draw = () => {
    measure();
    drawAxis();
    drawFilm();
    drawMarkers();
    curves.forEach(drawCurve);
    drawCursor();
    const whole = view.from <= first && view.to >= last;
    $("zoom-reset").disabled = whole;
    $("zoom-out").disabled = whole;
    $("zoom-range").textContent = whole ? "" : `${clock(view.from)} to ${clock(view.to)}`;
  };
  const setRange = (from, to) => {
    const span = Math.min(last - first, Math.max(to - from, Math.min(last - first, Math.max(4 * frameMs, 20))));
    view.from = Math.min(Math.max(first, from), last - span);
    view.to = view.from + span;
    draw();
    if ($("in-view").checked) fillTable(true);
  };
  const zoom = (factor) => {
    const center = pts[view.cursor] >= view.from && pts[view.cursor] <= view.to ? pts[view.cursor] : (view.from + view.to) / 2;
    const span = (view.to - view.from) * factor, share = (center - view.from) / (view.to - view.from);
    setRange(center - span * share, center + span * (1 - share));
  };
  $("zoom-in").addEventListener("click", () => zoom(0.5));
  $("zoom-out").addEventListener("click", () => zoom(2));
  $("zoom-reset").addEventListener("click", () => setRange(first, last));

  let drag = null;
  const local = (event) => event.clientX - plot.getBoundingClientRect().left - left;
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button") || local(event) < 0) return;
    drag = { start: local(event), touch: event.pointerType === "touch" };
    setCursor(frameAt(time(drag.start)));
  });
  plot.addEventListener("pointermove", (event) => {
    const at = local(event);
    if (at < 0 || at > width) return;
    setCursor(frameAt(time(at)));
    if (drag && !drag.touch && Math.abs(at - drag.start) > 4) {
      range.hidden = false;
      range.style.left = `${left + Math.min(at, drag.start)}px`;
      range.style.width = `${Math.abs(at - drag.start)}px`;
    }
  });
  window.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { start, touch } = drag, at = Math.min(width, Math.max(0, local(event)));
    drag = null;
    range.hidden = true;
    if (!touch && Math.abs(at - start) > 4) return setRange(time(Math.min(at, start)), time(Math.max(at, start)));
    const mark = event.target.closest?.(".mark");
    if (mark) pick(Number(mark.dataset.index), true);
  });
  plot.addEventListener("dblclick", () => setRange(first, last));
  plot.addEventListener("keydown", (event) => {
    if (event.target !== plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.round(count / 50));
    const starts = (step) => {
      const frame = facts.first_frame + view.cursor;
      const edges = markers.map((m) => m.start_frame).filter((f) => (step > 0 ? f > frame : f < frame));
      if (edges.length) setCursor((step > 0 ? edges.reduce((a, b) => Math.min(a, b)) : edges.reduce((a, b) => Math.max(a, b))) - facts.first_frame);
    };
    const actions = {
      ArrowRight: () => setCursor(view.cursor + (event.shiftKey ? 10 : 1)),
      ArrowLeft: () => setCursor(view.cursor - (event.shiftKey ? 10 : 1)),
      PageUp: () => setCursor(view.cursor + page), PageDown: () => setCursor(view.cursor - page),
      Home: () => setCursor(0), End: () => setCursor(count - 1),
      n: () => starts(1), p: () => starts(-1),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => setRange(first, last),
      Enter: () => {
        const before = stills.findLastIndex((s) => s.pts <= pts[view.cursor] + 0.5);
        if (stills.length) showStill(Math.max(0, before));
      },
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });

  // ---- marker table -----------------------------------------------------------------------
  const body = $("marker-rows"), more = $("more"), none = $("no-markers");
  const hidden = new Set();
  const PAGE = 200;
  let shown = PAGE;
  const matching = () => {
    const status = $("status").value, onlyView = $("in-view").checked;
    return markers.flatMap((m, index) =>
      !hidden.has(m.event_type) && (!status || m.status === status) &&
      (!onlyView || (m.end_pts_ms + frameMs >= view.from && m.start_pts_ms <= view.to)) ? [index] : []);
  };
  const row = (index) => {
    const m = markers[index], tr = el("tr");
    tr.dataset.index = index;
    const type = el("button", `type ${typeClass(m.event_type)}`);
    type.type = "button";
    type.append(el("span", "dot"), words(m.event_type));
    const cell = (content, className) => {
      const td = el("td", className);
      td.append(content);
      tr.append(td);
      return td;
    };
    cell(type);
    cell(el("span", `badge ${m.status}`, m.status));
    cell(clock(m.start_pts_ms), "r");
    cell(clock(m.end_pts_ms), "r");
    cell(`${((m.end_pts_ms - m.start_pts_ms + frameMs) / 1000).toFixed(2)} s`, "r");
    cell(m.start_frame === m.end_frame ? group(m.start_frame) : `${group(m.start_frame)} – ${group(m.end_frame)}`, "r");
    const meter = el("meter");
    meter.min = 0; meter.max = 1; meter.value = m.confidence;
    meter.setAttribute("aria-hidden", "true");
    const confidence = cell(meter, "r");
    confidence.append(m.confidence.toFixed(3));
    tr.addEventListener("click", () => pick(index, false));
    tr.classList.toggle("on", index === view.picked);
    return tr;
  };
  const fillTable = (restart) => {
    if (restart) shown = PAGE;
    const list = matching();
    body.replaceChildren(...list.slice(0, shown).map(row));
    more.hidden = list.length <= shown;
    more.textContent = `Show ${group(Math.min(PAGE, list.length - shown))} more of ${group(list.length - shown)}`;
    none.hidden = list.length > 0;
    $("marker-count").textContent = list.length === markers.length ? group(markers.length) : `${group(list.length)} of ${group(markers.length)}`;
  };
  const pick = (index, reveal) => {
    view.picked = index;
    setCursor(markers[index].start_frame - facts.first_frame);
    drawMarkers();
    for (const tr of body.children) tr.classList.toggle("on", Number(tr.dataset.index) === index);
    if (reveal) [...body.children].find((tr) => Number(tr.dataset.index) === index)?.scrollIntoView({ block: "nearest" });
  };
  more.addEventListener("click", () => { shown += PAGE; fillTable(false); });
  for (const type of types) {
    const chip = el("button", `chip ${typeClass(type)}`);
    chip.type = "button";
    chip.setAttribute("aria-pressed", "true");
    chip.append(el("span", "dot"), `${words(type)} ${group(markers.filter((m) => m.event_type === type).length)}`);
    chip.addEventListener("click", () => {
      if (hidden.has(type)) hidden.delete(type); else hidden.add(type);
      chip.setAttribute("aria-pressed", String(!hidden.has(type)));
      fillTable(true);
    });
    $("chips").append(chip);
  }
  $("status").addEventListener("change", () => fillTable(true));
  $("in-view").addEventListener("change", () => fillTable(true));
  $("marker-types").replaceChildren(...types.map((type) => el("span", typeClass(type), words(type))));

  // ---- stills -----------------------------------------------------------------------------
  const dialog = $("still");
  let open = 0;
  const showStill = (index) => {
    if (stills.length === 0) return;
    open = (index + stills.length) % stills.length;
    const still = stills[open];
    $("still-image").src = still.img.src;
    $("still-image").alt = still.img.alt;
    $("still-text").textContent = `${clock(still.pts)} · frame ${group(still.frame)} · ${words(still.reason)} · ${open + 1} of ${stills.length}`;
    setCursor(still.frame - facts.first_frame);
    if (!dialog.open) dialog.showModal();
  };
  stills.forEach((still, index) => still.figure.querySelector("button").addEventListener("click", () => showStill(index)));
  $("still-next").addEventListener("click", () => showStill(open + 1));
  $("still-previous").addEventListener("click", () => showStill(open - 1));
  $("still-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") showStill(open + 1);
    if (event.key === "ArrowLeft") showStill(open - 1);
  });

  $("theme").addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });

  plot.setAttribute("aria-valuemin", 0);
  plot.setAttribute("aria-valuemax", count - 1);
  fillTable(true);
  draw();
  new ResizeObserver(() => draw()).observe(plot);
  // Once the stills are decoded their true shapes are known.
  window.addEventListener("load", () => { drawFilm(); drawCursor(); });
})();
