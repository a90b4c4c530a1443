/* Pixels and colours: originals, pale copies of them, shades, and the colours of the page. */
"use strict";

const brusleTracePixels = (() => {
  /* An original as ImageData, however it is given. */
  async function pictureOf(original, [channels, h, w]) {
    if (typeof original !== "string") {
      const image = new ImageData(w, h);
      image.data.fill(255);
      for (let at = 0; at < h * w; at++) {
        image.data.set(rgb(original.subarray(channels * at, channels * (at + 1))), 4 * at);
      }
      return image;
    }
    const picture = new Image();
    picture.src = original;
    await picture.decode();
    const pen = canvasOf(w, h).getContext("2d");
    pen.drawImage(picture, 0, 0);
    return pen.getImageData(0, 0, w, h);
  }

  /* A copy in grey that is nearly the colour of the paper. */
  function pale({ data, width, height }, back) {
    const image = new ImageData(new Uint8ClampedArray(data), width, height);
    for (let at = 0; at < data.length; at += 4) {
      const grey = (data[at] + data[at + 1] + data[at + 2]) / 3;
      image.data.fill(0.25 * grey + 0.75 * back, at, at + 3);
    }
    const canvas = canvasOf(width, height);
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }

  function canvasOf(width, height) {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width, height];
    return canvas;
  }

  /* Of unusual numbers of channels the first three are shown, or the first. */
  function rgb(levels) {
    return levels.length >= 3 ? levels.slice(0, 3) : [levels[0], levels[0], levels[0]];
  }

  /* The colour at a share of the way through some. */
  function shade(stops, share) {
    const place = share * (stops.length - 1);
    const at = Math.min(Math.floor(place), stops.length - 2);
    const mixed = stops[at].map((level, i) => level + (stops[at + 1][i] - level) * (place - at));
    return [...mixed, 255];
  }

  /* A colour of page.css, as it is now. */
  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function colours(name) {
    const digits = colour(name).slice(1);
    const each = digits.length / 3; // #rgb or #rrggbb
    return [0, 1, 2].map((at) => parseInt(digits.slice(each * at, each * (at + 1)).repeat(3 - each), 16));
  }

  return { pictureOf, pale, rgb, shade, colour, colours };
})();
