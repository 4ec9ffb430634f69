/** What objects, arrays, texts, numbers and booleans lead to by the names that they inherit. */
const BUILTINS = [Object, Array, Function, String, Number, Boolean]

/**
 * Makes assignments fail that would add a property to these classes, their prototypes or one of their methods. Room code makes objects and arrays
 * of its own, such as `Object.values(state.players)`. If it indexes them by a string that a client chose, `[name].count = 1` would write
 * to what all rooms of the process share. To be called once everything is loaded: code that extends them later gets a TypeError.
 */
export function closeBuiltins(builtins: readonly { readonly prototype: unknown }[] = BUILTINS): void {
  for (const builtin of builtins)
    for (const owner of [builtin, builtin.prototype] as object[]) {
      for (const { value } of Object.values(Object.getOwnPropertyDescriptors(owner)))
        if (typeof value === 'function') Object.preventExtensions(value)
      Object.preventExtensions(owner)
    }
}
