// Arrays of numbers that the service sends as base64.

export const floats = (text) => new Float32Array(bytes(text));
export const integers = (text) => new Int32Array(bytes(text));

function bytes(text) {
  return Uint8Array.from(atob(text), (one) => one.charCodeAt(0)).buffer;
}
