package httptool

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// Where Open-Meteo is. It needs no key.
const (
	openMeteoPlaces  = "https://geocoding-api.open-meteo.com/v1/search"
	openMeteoWeather = "https://api.open-meteo.com/v1/forecast"
)

// WeatherURLs says where the two services of get_weather are; empty: Open-Meteo.
type WeatherURLs struct{ Places, Weather string }

// Weather returns the tool get_weather: the weather now at a place, by name.
func Weather(urls WeatherURLs) (tools.Tool, *Client, error) {
	places, weather := cmp.Or(urls.Places, openMeteoPlaces), cmp.Or(urls.Weather, openMeteoWeather)
	allow, err := ParseAllow([]string{places, weather})
	if err != nil {
		return tools.Tool{}, nil, err
	}
	type arguments struct {
		Place string `json:"place" jsonschema:"a city or other place, such as Singapore"`
	}
	client := NewClient(allow)
	return tools.Typed(tools.Tool{Spec: loop.ToolSpec{
		Name:        "get_weather",
		Description: "Returns the current temperature (in degrees Celsius), wind, humidity and precipitation at a place, from Open-Meteo.",
		Example:     json.RawMessage(`{"place":"Singapore"}`),
		Effect:      loop.EffectRead,
	}}, func(ctx context.Context, _ loop.Invocation, a arguments) (any, error) {
		var found struct {
			Results []struct {
				Name      string      `json:"name"`
				Country   string      `json:"country"`
				Latitude  json.Number `json:"latitude"`
				Longitude json.Number `json:"longitude"`
			} `json:"results"`
		}
		if err := client.getJSON(ctx, places, url.Values{"name": {a.Place}, "count": {"1"}}, &found); err != nil {
			return nil, err
		}
		if len(found.Results) == 0 {
			return nil, fmt.Errorf("no place %q is known: use the name of a larger place nearby, in English", a.Place)
		}
		at := found.Results[0]
		var now struct {
			Current json.RawMessage `json:"current"`
			Units   json.RawMessage `json:"current_units"`
		}
		err := client.getJSON(ctx, weather, url.Values{
			"latitude": {at.Latitude.String()}, "longitude": {at.Longitude.String()}, "timezone": {"auto"},
			"current": {"temperature_2m,apparent_temperature,relative_humidity_2m,precipitation,wind_speed_10m"},
		}, &now)
		if err != nil {
			return nil, err
		}
		return map[string]any{"place": at.Name, "country": at.Country, "now": now.Current, "units": now.Units}, nil
	}), client, nil
}

// getJSON fetches a JSON value.
func (c *Client) getJSON(ctx context.Context, address string, query url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"?"+query.Encode(), nil)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	got, err := c.do(request)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(got.body, into); err != nil {
		return fmt.Errorf("%s did not answer with the JSON that was expected: %w", request.URL.Host, err)
	}
	return nil
}
