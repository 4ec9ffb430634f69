import type { Json, JsonObject } from '../../shared/json.ts'
import type { JsonSchema } from './rooms.ts'

/** The inputs for a value of this schema, each named by its path in it; JSON as text where nothing is known of a part. */
export function Fields({ schema, name, path = name, optional = false }: FieldProps) {
  if (schema?.properties)
    return (
      <>
        {Object.entries(schema.properties).map(([key, part]) => {
          const needed = !optional && (schema.required ?? []).includes(key)
          return <Fields key={key} schema={part} name={key} path={`${path}/${key}`} optional={!needed} />
        })}
      </>
    )
  if (schema?.type === 'null') return null
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: an Input is one
    <label>
      <span>
        {name}
        {optional && <span class="soft"> optional</span>}
      </span>
      <Input schema={schema} path={path} optional={optional} />
    </label>
  )
}

interface FieldProps {
  /** Absent: any JSON. */
  readonly schema: JsonSchema | undefined
  readonly name: string
  readonly path?: string
  readonly optional?: boolean
}

function Input({
  schema = {},
  path,
  optional,
}: {
  schema?: JsonSchema | undefined
  path: string
  optional: boolean
}) {
  const { type, default: given } = schema
  const choices = choicesOf(schema)
  if (choices)
    return (
      <select name={path} defaultValue={given === undefined ? undefined : JSON.stringify(given)}>
        {optional && <option value="" />}
        {choices.map((choice) => (
          <option key={String(choice)} value={JSON.stringify(choice)}>
            {String(choice)}
          </option>
        ))}
      </select>
    )
  const shown = given === undefined ? '' : type === 'string' ? String(given) : JSON.stringify(given)
  if (type === 'number' || type === 'integer')
    return (
      <input
        name={path}
        type="number"
        step={type === 'integer' ? 1 : 'any'}
        min={schema.minimum}
        max={schema.maximum}
        defaultValue={shown}
        required={!optional}
      />
    )
  if (type === 'string')
    return <input name={path} maxLength={schema.maxLength} defaultValue={shown} spellcheck={false} />
  return (
    <textarea name={path} rows={2} placeholder={type === 'array' ? '[ ]' : 'JSON'} spellcheck={false}>
      {shown}
    </textarea>
  )
}

const choicesOf = ({ type, enum: words, const: only }: JsonSchema): readonly Json[] | undefined =>
  words ?? (only !== undefined ? [only] : type === 'boolean' ? [false, true] : undefined)

/** What was written into the `Fields` of a form. Throws where a text is no JSON. What is optional and empty is left out. */
export function readFields(form: FormData, schema: JsonSchema | undefined, path: string): Json | undefined {
  if (schema?.properties) {
    const parts = Object.entries(schema.properties).map(([key, part]) => [
      key,
      readFields(form, part, `${path}/${key}`),
    ])
    return Object.fromEntries(parts.filter(([, value]) => value !== undefined)) as JsonObject
  }
  if (schema?.type === 'null') return null
  const text = String(form.get(path) ?? '')
  if (schema?.type === 'string' && !choicesOf(schema)) return text
  if (text === '') return undefined
  try {
    return JSON.parse(text) as Json
  } catch {
    throw new Error(`${path} is no JSON: ${text}`)
  }
}
