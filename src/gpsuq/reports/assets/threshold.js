for (const block of document.querySelectorAll(".threshold")) {
  const data = held(block);
  const slider = block.querySelector("input");
  const said = block.querySelector("output");
  const wide = 640, left = 46, right = 12, high = 150;
  const x = (value) => left + (value - data.above[0]) / (data.above.at(-1) - data.above[0] || 1) * (wide - left - right);
  const panel = (title, most, curves) => {
    const y = (value) => 22 + (1 - value / most) * (high - 44);
    const svg = drawn("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": title });
    svg.append(drawn("text", { x: 0, y: 11 }, title));
    for (const tick of [0, 0.5, 1]) {
      svg.append(drawn("line", { class: "rule", x1: left, x2: wide - right, y1: y(tick * most), y2: y(tick * most) }));
      const text = `${(100 * tick * most).toFixed(most < 0.1 ? 1 : 0)}%`;
      svg.append(drawn("text", { x: left - 6, y: y(tick * most) + 4, "text-anchor": "end" }, text));
    }
    for (let k = 0; k <= 4; k++) {
      const at = data.above[0] + (k / 4) * (data.above.at(-1) - data.above[0]);
      svg.append(drawn("text", { x: x(at), y: high - 6, "text-anchor": "middle" }, at.toFixed(2)));
    }
    const path = (values) =>
      values.map((value, k) => (value === null ? "" : `${x(data.above[k])},${y(Math.min(value, most))}`)).join(" ");
    if (curves.low) {
      const back = curves.high.map((value, k) => [value, k]).reverse()
        .map(([value, k]) => (value === null ? "" : `${x(data.above[k])},${y(Math.min(value, most))}`)).join(" ");
      svg.append(drawn("polygon", { class: "band", points: `${path(curves.low)} ${back}` }));
    }
    svg.append(drawn("polyline", { class: curves.low ? "risk" : "curve", points: path(curves.value) }));
    if (data.in_use !== null && data.in_use <= data.above.at(-1)) {
      svg.append(drawn("line", { class: "limit", x1: x(data.in_use), x2: x(data.in_use), y1: 16, y2: high - 20 }));
    }
    const now = drawn("line", { class: "now", y1: 16, y2: high - 20 }), dot = drawn("circle", { class: "dot", r: 4 });
    svg.append(now, dot);
    block.querySelector(".chart").append(svg);
    return (place) => {
      const value = curves.value[place];
      for (const end of ["x1", "x2"]) now.setAttribute(end, x(data.above[place]));
      dot.setAttribute("cx", x(data.above[place]));
      dot.setAttribute("cy", y(Math.min(value ?? 0, most)));
      dot.setAttribute("visibility", value === null ? "hidden" : "visible");
    };
  };
  const share = data.certain.map((count) => count / data.n);
  const moves = [panel("certain, % of the observations, by threshold", 1, { value: share })];
  if (data.error) {
    const most = Math.min(1, Math.max(0.01, 1.3 * Math.max(...data.error), 2 * data.error[0]));
    moves.push(panel("wrong, % of the certain ones, by threshold", most,
      { value: data.error, low: data.error_low, high: data.error_high }));
  }
  const percent = (value) => `${(100 * value).toFixed(1)}%`;
  const update = () => {
    const wanted = Number(slider.value), off = data.above.map((value) => Math.abs(value - wanted));
    const place = off.indexOf(Math.min(...off)), count = data.certain[place];
    for (const move of moves) move(place);
    let text = `Above ${data.above[place].toFixed(3)}: ${percent(share[place])} are certain (${count} of ${data.n})`;
    if (data.error && count) {
      const [low, high] = [data.error_low[place], data.error_high[place]];
      text += `, and ${percent(data.error[place])} of them are wrong (95% confidence: ${percent(low)} to ${percent(high)})`;
    }
    said.value = `${text}.`;
    slider.setAttribute("aria-valuetext", text);
  };
  slider.min = data.above[0];
  slider.max = data.above.at(-1);
  slider.value = data.above[data.start];
  slider.addEventListener("input", update);
  update();
}
