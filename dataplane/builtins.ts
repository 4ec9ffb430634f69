/** Classes whose members every object, array, string, number and boolean inherits. */
const BUILTINS = [Object, Array, Function, String, Number, Boolean]

/**
 * Makes assignments fail that would add a property to these classes, their prototypes or one of their methods. Room code also has
 * objects and arrays that roomful does not guard, such as `Object.values(state.players)`. If it indexes them by a string from a client, `[name].count = 1` would write
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
