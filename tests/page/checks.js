// What axe does not see. Each check returns a list of faults, one text an element; a page without faults returns [].
// The file is evaluated in the page, and its last expression is the object of all checks.
(() => {
  const TARGETS = "a[href], button, input, select, textarea, summary, [role=tab], [tabindex='0']";
  const FOCUSABLE = TARGETS;
  const SHAPES = "rect, path, circle, ellipse, polygon";

  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const known = new Map();

  /** Red, green, blue and opacity of a colour of CSS, whatever space it is written in. */
  function rgba(colour) {
    if (!known.has(colour)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  }

  /** A colour of the system, as the scheme of the page has it. */
  function system(colour) {
    const probe = document.documentElement.appendChild(document.createElement("i"));
    probe.style.color = colour;
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];

  function luminance([r, g, b]) {
    const [x, y, z] = [r, g, b].map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  }

  function ratio(one, other) {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }

  /** The colour of an element's ground: its own, over those of what it stands in. */
  function ground(element) {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (!(at instanceof SVGElement)) layers.push(rgba(style.backgroundColor));
    }
    layers.push(rgba(system("Canvas")));
    return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255, 1]);
  }

  /** The ground of a text in a drawing: the shapes of the same drawing that lie under its middle, in their order. */
  function groundInDrawing(text, x, y) {
    const drawing = text.ownerSVGElement;
    let below = ground(drawing);
    for (const shape of drawing.querySelectorAll(SHAPES)) {
      if (shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_PRECEDING) continue; // drawn above the text
      if (shape.closest("defs, clipPath, pattern, mask")) continue;
      const box = shape.getBoundingClientRect(), style = getComputedStyle(shape);
      if (x < box.left || x > box.right || y < box.top || y > box.bottom) continue;
      if (style.fill === "none" || style.fill.startsWith("url") || style.visibility === "hidden") continue;
      const [r, g, b, a] = rgba(style.fill);
      below = over([r, g, b, a * style.fillOpacity * style.opacity], below);
    }
    return below;
  }

  function isSeen(element) {
    if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true})) return false;
    if (getComputedStyle(element).clipPath === "inset(50%)") return false; // for screen readers alone, or until it has the focus
    const box = element.getBoundingClientRect();
    return box.width > 1 && box.height > 1;
  }

  function name(element) {
    const label = element.getAttribute("aria-label") || element.id || element.textContent.trim().slice(0, 40);
    const kinds = element.getAttribute("class");
    return `${element.tagName.toLowerCase()}${kinds ? "." + kinds.trim().split(/\s+/).join(".") : ""} "${label}"`;
  }

  const elements = (selector = "body *") => [...document.querySelectorAll(selector)].filter(isSeen);

  /** Texts with less than 4.5:1 on their ground, 3:1 where they are large. */
  function contrast() {
    const faults = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      if (!node.data.trim() || !isSeen(element) || element.closest(":disabled, [aria-disabled=true], option")) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = range.getBoundingClientRect(), style = getComputedStyle(element);
      const isDrawn = element instanceof SVGElement;
      const below = isDrawn
        ? groundInDrawing(element, box.x + box.width / 2, box.y + box.height / 2)
        : ground(element);
      let opacity = 1;
      for (let at = element; at; at = at.parentElement) opacity *= getComputedStyle(at).opacity;
      const [r, g, b, a] = rgba(isDrawn ? style.fill : style.color);
      const found = ratio(over([r, g, b, a * opacity], below), below);
      const size = parseFloat(style.fontSize), isBold = style.fontWeight >= 700;
      const wanted = size >= 24 || (isBold && size >= 18.66) ? 3 : 4.5;
      if (found < wanted - 0.01) faults.push(`${name(element)}: ${found.toFixed(2)} of ${wanted} for "${node.data.trim().slice(0, 40)}"`);
    }
    for (const field of elements("input:not([type=hidden]), select, textarea")) {
      if (field.disabled || ["checkbox", "radio", "range"].includes(field.type)) continue;
      const style = getComputedStyle(field), around = ground(field.parentElement);
      const edge = style.borderTopStyle === "none" || !parseFloat(style.borderTopWidth) ? style.backgroundColor : style.borderTopColor;
      if (ratio(over(rgba(edge), around), around) < 3 - 0.01) faults.push(`${name(field)}: its edge has less than 3:1`);
    }
    return faults;
  }

  /** Controls smaller than 24 by 24 pixels; a label counts with its control, and links in a sentence do not. */
  function targets() {
    return elements(TARGETS).filter(isSmall).map(element => {
      const box = element.getBoundingClientRect();
      return `${name(element)}: ${box.width.toFixed(1)} × ${box.height.toFixed(1)}`;
    });
  }

  /** Whether neither a control nor its label is as large as a finger needs. */
  function isSmall(element) {
    if (element.tagName === "A" && getComputedStyle(element).display === "inline") return false;
    const boxes = [element, ...(element.labels ?? [])].map(one => one.getBoundingClientRect());
    return !boxes.some(box => box.width >= 23.9 && box.height >= 23.9);
  }

  /** What sticks out of a narrow window: the page as a whole, texts outside of a place that scrolls by itself, and places that scroll sideways, but for code, and menus that cut an option. */
  function reflow() {
    const width = document.documentElement.clientWidth, faults = [];
    if (document.documentElement.scrollWidth > width) faults.push(`the page is ${document.documentElement.scrollWidth} wide of ${width}`);
    for (const element of elements("body *")) {
      const box = element.getBoundingClientRect();
      if (box.right <= width + 1 && box.left >= -1) continue;
      let isInside = false;
      for (let at = element.parentElement; at && !isInside; at = at.parentElement) {
        isInside = ["auto", "scroll"].includes(getComputedStyle(at).overflowX) && at.getBoundingClientRect().right <= width + 1;
      }
      if (!isInside) faults.push(`${name(element)}: from ${box.left.toFixed(0)} to ${box.right.toFixed(0)} of ${width}`);
    }
    for (const element of elements("body *:not(pre, textarea, input)")) {
      const scrolls = ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
      if (scrolls && element.scrollWidth > element.clientWidth + 1) faults.push(`${name(element)}: scrolls to ${element.scrollWidth} of ${element.clientWidth}`);
    }
    for (const menu of elements("select").filter(one => getComputedStyle(one).fieldSizing !== "content")) {
      const whole = menu.cloneNode(true);
      whole.style.inlineSize = "max-content";
      whole.style.position = "absolute";
      menu.parentElement.append(whole);
      const [wide, full] = [menu, whole].map(one => one.getBoundingClientRect().width);
      whole.remove();
      if (wide < full - 1) faults.push(`${name(menu)}: ${wide.toFixed(0)} of ${full.toFixed(0)} for its longest option`);
    }
    return faults;
  }

  /** Elements that move although motion is to be reduced. */
  function motion() {
    const faults = document.getAnimations().map(one => `it runs: ${one.animationName ?? one.transitionProperty ?? "an animation"}`);
    const longest = text => Math.max(...text.split(",").map(parseFloat));
    for (const element of document.querySelectorAll("*")) {
      for (const part of ["", "::before", "::after"]) {
        const style = getComputedStyle(element, part);
        const isAnimated = style.animationName !== "none" && longest(style.animationDuration) > 0.01;
        if (isAnimated || longest(style.transitionDuration) > 0.01) faults.push(name(element) + part);
      }
      if (getComputedStyle(element).scrollBehavior === "smooth") faults.push(`${name(element)} scrolls smoothly`);
    }
    return faults;
  }

  /** The element that has the focus: without a ring of two pixels and 3:1, or hidden below something else. */
  function focus() {
    const element = document.activeElement;
    if (!element || element === document.body) return [];
    const style = getComputedStyle(element), around = ground(element.parentElement), faults = [];
    const hasRing = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1.9;
    if (!hasRing) faults.push(`${name(element)}: no ring`);
    else if (ratio(over(rgba(style.outlineColor), around), around) < 3 - 0.01) faults.push(`${name(element)}: its ring has less than 3:1`);
    const box = element.getBoundingClientRect();
    const x = Math.min(Math.max(box.x + box.width / 2, 1), innerWidth - 1);
    const y = Math.min(Math.max(box.y + box.height / 2, 1), innerHeight - 1);
    const top = document.elementFromPoint(x, y);
    if (element.matches(TARGETS) && isSmall(element)) faults.push(`${name(element)}: ${box.width.toFixed(1)} × ${box.height.toFixed(1)}`);
    const isFree = top && (element.contains(top) || top.contains(element) || [...(element.labels ?? [])].some(one => one.contains(top)));
    if (!isFree) faults.push(`${name(element)}: hidden below ${top ? name(top) : "the edge of the window"}`);
    return faults;
  }

  /** Where colours are forced: shapes that melt into the ground, and a chosen tab that looks like the others. */
  function forced() {
    const faults = [];
    for (const shape of elements(`svg :is(${SHAPES})`)) {
      if (shape.closest("defs, clipPath, pattern, mask, .sel-ground, .sel-band, .sel-plain, .sel-plate")) continue; // or what lies below others
      const style = getComputedStyle(shape), below = ground(shape.ownerSVGElement);
      const inks = [[style.fill, style.fillOpacity], [parseFloat(style.strokeWidth) ? style.stroke : "none", style.strokeOpacity]];
      const isSeenOn = ([ink, opacity]) => {
        if (ink === "none") return false;
        if (ink.startsWith("url")) return true;
        const [r, g, b, a] = rgba(ink);
        return ratio(over([r, g, b, a * opacity * style.opacity], below), below) >= 3 - 0.01;
      };
      const isClear = ink => ink === "none" || (!ink.startsWith("url") && rgba(ink)[3] === 0);
      if (inks.every(([ink]) => isClear(ink))) continue; // it only takes clicks
      if (!inks.some(isSeenOn)) faults.push(`${name(shape)}: not seen on its ground`);
    }
    const look = tab => {
      const style = getComputedStyle(tab);
      return ["backgroundColor", "borderBottomStyle", "borderBottomWidth", "outline", "textDecoration", "fontWeight"].map(one => style[one]).join();
    };
    const chosen = elements("[role=tab][aria-selected=true]"), others = elements("[role=tab][aria-selected=false]");
    for (const tab of chosen) if (others.some(other => look(other) === look(tab))) faults.push(`${name(tab)}: looks like the other tabs`);
    return faults;
  }

  return {contrast, targets, reflow, motion, focus, forced, n_focusable: () => elements(FOCUSABLE).length};
})()
