// Formulas, loaded when a text has one.

export { default as katex } from "katex";
