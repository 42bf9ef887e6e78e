// Common script of all pages: the document.
"use strict";
const $ = id => document.getElementById(id);
function make(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "rect", "circle", "line", "text", "title"].includes(name);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
