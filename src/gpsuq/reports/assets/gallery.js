for (const gallery of document.querySelectorAll(".gallery")) {
  const data = held(gallery);
  const form = gallery.querySelector("form");
  const place = gallery.querySelector(".shown");
  const more = gallery.querySelector(".more");
  const printed = gallery.querySelector(".printed");
  const dialog = gallery.querySelector("dialog");
  const detail = gallery.querySelector(".detail");
  const pictured = data.items.some((item) => item.image);
  const step = 60;
  let shown = step;

  const digits = (value) => value.toPrecision(3);
  const verdict = (item) => (item.uncertain ? "Uncertain" : "Certain");
  const scores = Object.keys(data.items[0]?.scores ?? {});
  const labelled = data.items.some((item) => item.label !== null);
  const columns = [
    { name: "observation", key: (item) => data.items.indexOf(item) },
    { name: "verdict", key: verdict, cell: verdict },
    { name: "prediction", key: (item) => item.prediction, cell: (item) => item.prediction },
    { name: "probability", key: (item) => item.probability ?? 0, number: true,
      cell: (item) => (item.probability === undefined ? "" : `${(100 * item.probability).toFixed(1)}%`) },
    ...(labelled ? [{ name: "label", key: (item) => item.label, cell: (item) => item.label }] : []),
    { name: "why", key: (item) => item.reason ?? "", cell: (item) => item.reason ?? "" },
    ...scores.slice(0, 2).map((name) => (
      { name, key: (item) => item.scores[name], cell: (item) => digits(item.scores[name]), number: true })),
  ];
  let by = null; // column that a table is sorted by, if not by the form

  for (const name of data.classes) form.elements.class.append(element("option", { value: name, textContent: name }));
  for (const name of scores) form.elements.score.append(element("option", { value: name, textContent: name }));

  const selected = () => {
    const { score, order, search } = form.elements;
    const wanted = form.elements.class.value, kind = form.elements.verdict.value;
    const words = search.value.toLowerCase().split(/\s+/);
    const said = (item) =>
      [item.title, verdict(item), item.prediction, item.label ?? "", item.reason ?? "", item.wrong ? "wrong" : ""]
        .join(" ").toLowerCase();
    const kept = data.items.filter(
      (item) =>
        (!wanted || item.label === wanted || item.prediction === wanted) &&
        (!kind || (kind === "wrong" ? item.wrong : (kind === "uncertain") === item.uncertain)) &&
        words.every((word) => said(item).includes(word)),
    );
    const key = by ? by.key : (item) => item.scores[score.value];
    const sign = (by ? by.down : order.value === "down") ? -1 : 1;
    return kept.sort((a, b) => sign * (typeof key(a) === "string" ? key(a).localeCompare(key(b)) : key(a) - key(b)));
  };

  const boxplot = (item) => {
    const wide = 520, high = 250, left = 56, bottom = 55, top = 10;
    const y = (value) => top + (1 - value) * (high - top - bottom);
    const svg = drawn("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": "Class probabilities" });
    for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(drawn("line", { class: "rule", x1: left, x2: wide, y1: y(tick), y2: y(tick) }));
      svg.append(drawn("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, tick));
    }
    const drawnClasses = item.classes ?? [...data.classes.keys()]; // of very many classes the likeliest
    const pitch = (wide - left) / drawnClasses.length;
    const level = (number) => y(data.certainAbove[number]);
    const steps = drawnClasses.map((number) => `V${level(number)}h${pitch}`).join("");
    svg.append(drawn("path", { class: "limit", d: `M${left} ${level(drawnClasses[0])}${steps}` }));
    drawnClasses.forEach((number, rank) => {
      const name = data.classes[number];
      const [low, first, median, third, high5, t] = item.boxes[rank];
      const x = left + pitch * (rank + 0.5), half = Math.min(16, 0.32 * pitch);
      svg.append(drawn("line", { class: "box", x1: x, x2: x, y1: y(low), y2: y(high5) }));
      svg.append(drawn("rect", { class: "box", x: x - half, width: 2 * half, y: y(third),
        height: Math.max(1, y(first) - y(third)) }));
      svg.append(drawn("line", { class: "median", x1: x - half, x2: x + half, y1: y(median), y2: y(median) }));
      svg.append(drawn("path", { class: "cross", d: `M${x - 5} ${y(t) - 5}l10 10m0 -10l-10 10` }));
      const turned = name.length > 3 ? `rotate(-35 ${x} ${high - bottom + 16})` : "";
      svg.append(drawn("text", { x, y: high - bottom + 16, transform: turned,
        "text-anchor": turned ? "end" : "middle" }, name));
    });
    svg.append(drawn("text", { x: 12, y: y(0.5), transform: `rotate(-90 12 ${y(0.5)})`, "text-anchor": "middle" },
      "class probability"));
    return svg;
  };

  const open = (item) => {
    const list = element("dl");
    for (const [name, value] of Object.entries(item.scores)) {
      list.append(element("dt", { textContent: name }), element("dd", { textContent: digits(value) }));
    }
    const image = item.image ? [element("img", { src: item.image, alt: item.title })] : [];
    const truth = item.label === null ? "" : ` (label ${item.label})`;
    detail.replaceChildren(
      element("div", {}, ...image, list),
      element(
        "div",
        {},
        element("h3", { textContent: item.title }),
        element("p", { textContent: `${verdict(item)}: ${item.prediction}${truth}` }),
        element("p", { textContent: item.reason ?? "" }),
        boxplot(item),
        element("p", {
          textContent: `Boxes: quantiles ${data.levels.join(", ")} over draws. Crosses: t_h. Certain where the highest is above the dashed line.`,
        }),
      ),
    );
    dialog.showModal();
  };

  const opener = (item, said, ...children) => {
    const button = element("button", { type: "button", className: "item", onclick: () => open(item) }, ...children);
    button.classList.toggle("uncertain", item.uncertain);
    button.classList.toggle("wrong", item.wrong);
    button.setAttribute("aria-label", `${item.title}: ${said}, ${verdict(item)}`);
    return button;
  };

  const cards = (items) =>
    element("div", { className: "grid", role: "list" }, ...items.map((item) => {
      const said = item.label === null ? item.prediction : `${item.label} → ${item.prediction}`;
      const image = item.image ? [element("img", { src: item.image, alt: "" })] : [];
      const words = element("span", { className: "said", textContent: said });
      const button = opener(item, said, ...image, words, element("span", { className: "verdict", textContent: verdict(item) }));
      button.title = item.reason ?? "";
      return element("div", { role: "listitem" }, button);
    }));

  const table = (items) => {
    const heads = columns.map((column) => {
      const button = element("button", { type: "button", textContent: column.name });
      button.addEventListener("click", () => {
        by = { ...column, down: by?.name === column.name ? !by.down : true };
        update();
        gallery.querySelectorAll("thead button")[columns.indexOf(column)].focus();
      });
      const head = element("th", { scope: "col", className: column.number ? "" : "words" }, button);
      if (by?.name === column.name) head.setAttribute("aria-sort", by.down ? "descending" : "ascending");
      return head;
    });
    const rows = items.map((item) => {
      const button = opener(item, item.prediction, item.title);
      const cells = columns.slice(1).map((column) => {
        const said = element("span", { className: column.name === "prediction" ? "said" : "", textContent: column.cell(item) });
        return element("td", { className: column.number ? "" : "words" }, said);
      });
      return element("tr", { className: item.wrong ? "wrong" : "" }, element("th", { scope: "row" }, button), ...cells);
    });
    const made = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
    return element("div", { className: "scroll", tabIndex: 0 }, made);
  };

  const update = () => {
    const kept = selected();
    form.elements.count.value = `${kept.length} of ${data.items.length}`;
    place.replaceChildren((pictured ? cards : table)(kept.slice(0, shown)));
    more.hidden = kept.length <= shown;
    const chosen = ["verdict", "class", "score", "order"].map((name) => {
      const select = form.elements[name];
      return `${select.labels[0].firstChild.textContent.trim()}: ${select.selectedOptions[0]?.textContent ?? "none"}`;
    });
    if (by) chosen.splice(2, 2, `Sort by: ${by.name}`, `Order: ${by.down ? "highest first" : "lowest first"}`);
    if (form.elements.search.value) chosen.push(`Search: ${form.elements.search.value}`);
    printed.textContent =
      `Printed: ${Math.min(shown, kept.length)} of ${data.items.length} observations (${chosen.join("; ")}).`;
  };

  form.addEventListener("input", (event) => {
    if (["score", "order"].includes(event.target.name)) by = null;
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
}
