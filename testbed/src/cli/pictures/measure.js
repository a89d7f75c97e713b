// Measures every text and rectangle of the picture, and replaces the page by the findings: first how much
// was measured, then a line for each fault.
(() => {
  const svg = document.querySelector("svg");
  const view = svg.getBoundingClientRect();
  const near = 0.6; // half of a line's width, and rounding
  const drawn = (kind) => [...svg.querySelectorAll(kind)].filter((of) => !of.closest("defs"));
  const box = (of) => {
    const { left, top, right, bottom } = of.getBoundingClientRect();
    const name = of.textContent || of.getAttribute("class") || "";
    return { of, left, top, right, bottom, name: `${of.tagName} "${name.slice(0, 60)}"` };
  };
  const inside = (one, other) =>
    one.left >= other.left - near && one.right <= other.right + near &&
    one.top >= other.top - near && one.bottom <= other.bottom + near;
  const meet = (one, other) =>
    one.left < other.right - near && other.left < one.right - near &&
    one.top < other.bottom - near && other.top < one.bottom - near;
  const at = (of) => `${of.name} at ${Math.round(of.left)},${Math.round(of.top)}`;
  const faults = [];
  const rects = drawn("rect").map(box);
  const texts = drawn("text").map(box);
  for (const one of [...rects, ...texts]) {
    if (!inside(one, view)) faults.push(`${at(one)} is outside of the picture`);
  }
  rects.forEach((one, index) => {
    for (const other of rects.slice(index + 1)) {
      if (meet(one, other) && !inside(one, other) && !inside(other, one)) {
        faults.push(`${at(one)} is partly over ${at(other)}`);
      }
    }
  });
  texts.forEach((one, index) => {
    // A text is inside of every rectangle that it touches, or of one inside of that.
    for (const rect of rects) {
      if (meet(one, rect) && !inside(one, rect)) faults.push(`${at(one)} leaves ${at(rect)}`);
      const follows = one.of.compareDocumentPosition(rect.of) & Node.DOCUMENT_POSITION_FOLLOWING;
      if (follows && meet(one, rect)) faults.push(`${at(one)} is under ${at(rect)}`);
    }
    for (const other of texts.slice(index + 1)) {
      if (meet(one, other)) faults.push(`${at(one)} is over ${at(other)}`);
    }
  });
  const report = document.createElement("pre");
  report.id = "measured";
  const count = texts.length > 0 && rects.length > 0;
  report.textContent = count
    ? [`measured ${texts.length} texts and ${rects.length} rectangles`, ...faults].join("\n")
    : "nothing";
  document.body.replaceChildren(report);
})();
