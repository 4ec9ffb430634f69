/** A JSON value: what room state, message data, event data and join options are made of. Treated as immutable once handed over. */
export type Json = null | boolean | number | string | JsonArray | JsonObject
export type JsonArray = readonly Json[]
export type JsonObject = { readonly [key: string]: Json }
