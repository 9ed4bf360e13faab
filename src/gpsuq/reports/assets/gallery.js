"use strict";
document.querySelectorAll(".gallery").forEach((gallery) => {
  const data = JSON.parse(gallery.querySelector(".data").textContent);
  const form = gallery.querySelector("form");
  const grid = gallery.querySelector(".grid");
  const more = gallery.querySelector(".more");
  const printed = gallery.querySelector(".printed");
  const dialog = gallery.querySelector("dialog");
  const detail = gallery.querySelector(".detail");
  const step = 60;
  let shown = step;

  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const drawn = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const digits = (value) => value.toPrecision(3);

  for (const name of data.classes) form.elements.class.append(element("option", { value: name, textContent: name }));
  for (const name of Object.keys(data.items[0]?.scores ?? {})) {
    form.elements.score.append(element("option", { value: name, textContent: name }));
  }

  const selected = () => {
    const { verdict, score, order } = form.elements;
    const wanted = form.elements.class.value;
    const kept = data.items.filter(
      (item) =>
        (!wanted || item.label === wanted || item.prediction === wanted) &&
        (!verdict.value ||
          (verdict.value === "wrong" ? item.wrong : (verdict.value === "uncertain") === item.uncertain)),
    );
    const sign = order.value === "down" ? -1 : 1;
    return kept.sort((a, b) => sign * (a.scores[score.value] - b.scores[score.value]));
  };

  const boxplot = (item) => {
    const wide = 520, high = 250, left = 56, bottom = 55, top = 10;
    const y = (value) => top + (1 - value) * (high - top - bottom);
    const svg = drawn("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": "Class probabilities" });
    for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(drawn("line", { x1: left, x2: wide, y1: y(tick), y2: y(tick), stroke: "#e5e5e5" }));
      svg.append(drawn("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end", "font-size": 11 }, tick));
    }
    const shown = item.classes ?? [...data.classes.keys()]; // of very many classes the likeliest
    const pitch = (wide - left) / shown.length;
    const level = (place) => y(data.certainAbove[place]);
    const steps = shown.map((place) => `V${level(place)}h${pitch}`).join("");
    svg.append(drawn("path", { d: `M${left} ${level(shown[0])}${steps}`, fill: "none", stroke: "#57606a", "stroke-dasharray": "5 4" }));
    shown.forEach((place, number) => {
      const name = data.classes[place];
      const [low, first, median, third, high5, t] = item.boxes[number];
      const x = left + pitch * (number + 0.5), half = Math.min(16, 0.32 * pitch);
      const blue = "#0072b2";
      svg.append(drawn("line", { x1: x, x2: x, y1: y(low), y2: y(high5), stroke: blue }));
      svg.append(drawn("rect", { x: x - half, width: 2 * half, y: y(third), height: Math.max(1, y(first) - y(third)),
        fill: "#dceaf4", stroke: blue }));
      svg.append(drawn("line", { x1: x - half, x2: x + half, y1: y(median), y2: y(median), stroke: blue,
        "stroke-width": 2.5 }));
      svg.append(drawn("path", { d: `M${x - 5} ${y(t) - 5}l10 10m0 -10l-10 10`, stroke: "#000", "stroke-width": 2 }));
      const turned = name.length > 3 ? `rotate(-35 ${x} ${high - bottom + 16})` : "";
      svg.append(drawn("text", { x, y: high - bottom + 16, transform: turned, "font-size": 11,
        "text-anchor": turned ? "end" : "middle" }, name));
    });
    svg.append(drawn("text", { x: 12, y: y(0.5), transform: `rotate(-90 12 ${y(0.5)})`, "text-anchor": "middle",
      "font-size": 11 }, "class probability"));
    return svg;
  };

  const open = (item) => {
    const scores = element("dl");
    for (const [name, value] of Object.entries(item.scores)) {
      scores.append(element("dt", { textContent: name }), element("dd", { textContent: digits(value) }));
    }
    const image = item.image ? [element("img", { src: item.image, alt: item.title })] : [];
    const said = `${item.uncertain ? "Uncertain" : "Certain"}: ${item.prediction}`;
    const truth = item.label === null ? "" : ` (label ${item.label})`;
    detail.replaceChildren(
      element("div", {}, ...image, scores),
      element(
        "div",
        {},
        element("h3", { textContent: item.title }),
        element("p", { textContent: said + truth }),
        boxplot(item),
        element("p", {
          textContent: `Boxes: quantiles ${data.levels.join(", ")} over draws. Crosses: t_h. Certain where the highest is above the dashed line.`,
        }),
      ),
    );
    dialog.showModal();
  };

  const update = () => {
    const kept = selected();
    form.elements.count.value = `${kept.length} of ${data.items.length}`;
    grid.replaceChildren(
      ...kept.slice(0, shown).map((item) => {
        const said = item.label === null ? item.prediction : `${item.label} → ${item.prediction}`;
        const image = item.image ? [element("img", { src: item.image, alt: "" })] : [];
        const button = element(
          "button",
          { type: "button", className: "item", onclick: () => open(item) },
          ...image,
          element("span", { className: "said", textContent: said }),
          element("span", { className: "verdict", textContent: item.uncertain ? "Uncertain" : "Certain" }),
        );
        button.classList.toggle("uncertain", item.uncertain);
        button.classList.toggle("wrong", item.wrong);
        button.setAttribute("aria-label", `${item.title}: ${said}, ${item.uncertain ? "Uncertain" : "Certain"}`);
        return element("div", { role: "listitem" }, button);
      }),
    );
    more.hidden = kept.length <= shown;
    const chosen = ["verdict", "class", "score", "order"].map((name) => {
      const select = form.elements[name];
      return `${select.labels[0].firstChild.textContent.trim()}: ${select.selectedOptions[0]?.textContent ?? "none"}`;
    });
    printed.textContent =
      `Printed: ${Math.min(shown, kept.length)} of ${data.items.length} observations (${chosen.join("; ")}).`;
  };

  form.addEventListener("change", () => {
    shown = step;
    update();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", () => {
    shown += step;
    update();
  });
  gallery.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  update();
});
