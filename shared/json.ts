/** A JSON value: what room state, message data, event data and join options are made of. Treated as immutable once handed over. */
export type Json = null | boolean | number | string | JsonArray | JsonObject
export type JsonArray = readonly Json[]
export type JsonObject = { readonly [key: string]: Json }

/** Whether a text has no half of a surrogate pair, which JSON can escape and UTF-8 cannot carry. */
export const isWellFormed = (text: string): boolean =>
  // Browsers have the method since 2023. It takes a twentieth of the time.
  text.isWellFormed?.() ?? !/\p{Surrogate}/u.test(text)
