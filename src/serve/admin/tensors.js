// Common script of the pages that show models (status_page.html, try_page.html): their tensors, and zeros for them.
const tensors = list => list.map(({ name, datatype, shape }) => make("div", {}, name, make("span", { class: "dim" }, ` ${datatype} [${shape.join(", ")}]`)));
const sizes = shape => shape.map(n => n < 0 ? 1 : n);
const count = shape => shape.reduce((product, n) => product * n, 1);
const zeros = (datatype, n) => Array(n).fill({ BYTES: "hello", BOOL: false }[datatype] ?? 0);
