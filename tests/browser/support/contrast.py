"""A measurement of the contrast of everything that is seen on a page."""

CONTRAST = """
() => {
  // WCAG 2: contrast of each text with what is painted behind it.
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const parse = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return { rgb: [r, g, b], a: a / 255 };
  };
  const over = (top, below) => top.rgb.map((c, i) => c * top.a + below[i] * (1 - top.a));
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((c) => {
      c /= 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      layers.push(parse(getComputedStyle(each).backgroundColor));
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const poor = [];
  let seen = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest(".unseen, .skip, svg")) continue;
    seen += 1;
    const below = ground(element);
    const value = ratio(over(parse(getComputedStyle(element).color), below), below);
    if (value < 4.5) poor.push([walker.currentNode.data.trim(), value]);
  }
  for (const mark of document.querySelectorAll(".glyph, .bar, .mark")) {
    const below = ground(mark);
    const value = ratio(over(parse(getComputedStyle(mark).color), below), below);
    seen += 1;
    if (value < 3) poor.push([mark.getAttribute("class"), value]);
  }
  return { seen, poor };
}
"""
